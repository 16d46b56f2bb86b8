"""Kill claims on the DynamoDB manifest at random points, KILLS times in all; each time the next attempt must end up with the same keys: python soak_claims.py KILLS [SEED].
"""
import os, random, sys, time
from emulator import ministack
from test_dynamodb import IDS, killed_and_run_again

if __name__ == "__main__":
    kills, pick = int(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_DEFAULT_REGION", "us-east-1")): os.environ.setdefault(name, value)
    expected = {(i, p) for n, (i, prints) in enumerate(IDS) for p in prints if p == "g" or n % 7}
    start, done = time.monotonic(), 0
    with ministack() as address:
        while done < kills:
            points = [f"{pick.choice(['before_insert', 'after_insert'])}:{pick.randint(1, 8)}" for _ in range(min(5, kills - done))]
            assert killed_and_run_again(address, points)[1] == expected, points
            done += len(points)
    print(f"{done} kills, every key kept once, {time.monotonic() - start:.0f} s")
