"The rules of the deduper, followed row by row."

import math
from fractions import Fraction

from dedup_nb.manifest.ledger import Marker
from dedup_nb.streams.deduper import Deduper

SCHEMA = "seq int, key string, time bigint"
HOUR = 3_600_000


class Model:
    "The rules of the deduper, row by row; times and spans in milliseconds."

    def __init__(self, horizon, span=1, reference=0, scope="horizon", expiry="bucket", max_future=None):
        self.horizon, self.span, self.scope, self.expiry = horizon, span, scope, expiry
        self.n, self.origin, self.step = math.ceil(horizon / span), reference - horizon, max_future
        self.latest, self.anchors = reference - Fraction(1, 1000), {}  # a microsecond
        self.limit, self.is_first = math.inf, True

    def begin(self, times):
        "A batch with these times comes."
        hours = sorted(at - at % HOUR for at in times)
        known = hours[(len(hours) - 1) // 2] if self.is_first else self.latest
        self.limit, self.is_first = math.inf if self.step is None else known + self.step, False

    def bucket(self, at):
        return (at - self.origin) // self.span

    def ages(self, at):
        return at if self.expiry == "exact" else self.bucket(at)

    @property
    def now(self):
        return self.latest if self.expiry == "exact" else max(self.n - 1, self.bucket(self.latest))

    def lives(self, at):
        return self.now - self.ages(at) < (self.horizon if self.expiry == "exact" else self.n)

    def take(self, key, at):
        at = min(at, self.limit)  # a clock that runs ahead
        self.latest = max(self.latest, at)
        if not self.lives(at):
            return "expired"
        place = (key, self.bucket(at)) if self.scope == "bucket" else key
        if place in self.anchors and (self.scope == "bucket" or self.lives(self.anchors[place])):
            return "duplicate"
        self.anchors[place] = at
        return "unique"

    def split(self, rows, start=0):
        "The outcomes of a batch of keys and times, by their numbers."
        self.begin([at for _, at in rows])
        return {n: self.take(key, at) for n, (key, at) in enumerate(rows, start)}


def outcomes_by_seq(found):
    return {r.seq: r.outcome for r in found.tagged.select("seq", "outcome").collect()}


def deduper_of(how):
    told = {n: how[n] / 1000 for n in ("horizon", "span", "reference")}
    step = how["max_future"]
    return Deduper(
        key="key",
        event_time="time",
        order_by=["seq"],
        expire_before=told["horizon"],
        bucket_span=told["span"],
        reference_instant=told["reference"],
        scope=how["scope"],
        expiry=how["expiry"],
        max_future=step and step / 1000,
    )


FEW = [
    (dict(horizon=10, span=5, reference=0, scope="horizon", expiry="bucket", max_future=None), 2),
    (dict(horizon=10, span=3, reference=2, scope="horizon", expiry="exact", max_future=None), 7),
    (dict(horizon=8, span=9, reference=0, scope="bucket", expiry="bucket", max_future=7), 1),
]


def commit_marker(number, **told):
    return Marker(number + 1, "commit", f"{number:09d}", {"first_seq": number + 1, "token": "t", **told})
