"""Claims on the DynamoDB manifest under bad luck: python soak_claims.py KILLS [SEED].

Attempts are killed at random requests, KILLS times in all; each time the next one must end up with the same
keys. Beside that runs race for colliding ids, with lost, cut and throttled answers: each pair and each id is
kept once, and every dropped row points at an event that is kept.
"""

import os
import random
import sys
import time

from claimants import ROUGH, check_killed, check_race, killed_and_run_again
from emulator import ministack

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


def main(kills, seed=1):
    pick, start, done, races = random.Random(seed), time.monotonic(), 0, 0
    with ministack() as address:
        while done < kills:
            number = min(5, kills - done)
            kinds = [pick.choice(["before_insert", "after_insert"]) for _ in range(number)]
            points = [f"{kind}:{pick.randint(1, 8)}" for kind in kinds]
            heads = pick.random() < 0.7
            check_killed(*killed_and_run_again(address, points, heads)[2:])
            check_race(address, seed * 1000 + races, pick.choice([12, 40, 120]), ROUGH | {"slow": 0.2})
            done, races = done + number, races + 1
            print(f"{done} of {kills} kills, {races} races", flush=True)
    took = time.monotonic() - start
    print(f"{done} kills and {races} races: every pair and every id kept once ({took:.0f} s, seed {seed})")


if __name__ == "__main__":
    for name, value in KEYS.items():
        os.environ.setdefault(name, value)
    main(*map(int, sys.argv[1:]))
