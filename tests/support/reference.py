"""What `deduplicate` has to give, in plain Python: one batch, no manifest, a row is a dict.

Slow and plain on purpose, and free of the package's code. Times are texts in one UTC form, which sort as the
times do.
"""

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from uuid import uuid5

PRESETS = {"none": {}, "snowplow": {"synthetic": "rename_all", "missing_fingerprint": "unique"}}
# strategy -> (verdict on the first pair of an id, verdict on a later one); keep = as if it were alone
STRATEGIES = {
    "rename_later": ("keep", "rename"),
    "rename_all": ("rename", "rename"),
    "quarantine": ("keep", "quarantine"),
    "delete_all": ("drop", "drop"),
    "off": ("keep", "keep"),
}


@dataclass
class Outcome:
    kept: list = field(default_factory=list)
    dropped: list = field(default_factory=list)
    bad: list = field(default_factory=list)
    verdicts: list = field(default_factory=list)


def sha256_of(row, columns):
    "SHA-256 of the columns as JSON: by name, without nulls, times as microseconds since 1970."
    told = {c: _told(c, row[c]) for c in sorted(columns) if row[c] is not None}
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _told(column, value):
    if not column.endswith("_tstamp"):
        return str(value)
    since = datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return str(since // timedelta(microseconds=1))


def place_of(row, order, row_hash, first_if_null=()):
    "The place of a row in the total order: nulls last, or first where it is said."
    nulls = [(row[c] is not None) if c in first_if_null else (row[c] is None) for c in order]
    return [*zip(nulls, (row[c] or "" for c in order)), row_hash(row)]


def deduplicate(
    rows,  # dicts with event_id, event_fingerprint and more
    *,
    namespace,  # UUID, of all new ids
    row_hash,  # row -> text, the last tie-break
    surrogate,  # row -> text that stands in for a missing fingerprint
    order=("etl_tstamp", "collector_tstamp"),
    batch_id=None,
    natural="keep_first",
    compat="none",
    **chosen,  # synthetic, missing_fingerprint
):
    settings = {"synthetic": "rename_later", "missing_fingerprint": "surrogate", **PRESETS[compat], **chosen}
    outcome, events_of = Outcome(), defaultdict(list)
    for row in rows:
        if not row["event_id"]:
            outcome.bad.append(row)
        elif natural == "off":
            outcome.kept.append(_kept(row, None, None))
        else:
            looked_up = _looked_up(row, settings["missing_fingerprint"], surrogate, namespace)
            events_of[looked_up].append(row)
    early = ("etl_tstamp",) if compat == "snowplow" else ()
    for event_id, events in events_of.items():
        events.sort(key=lambda row: place_of(row, order, row_hash, early))
        pairs = _pairs_of(events, settings["missing_fingerprint"], surrogate, batch_id)
        for i, (name, copies) in enumerate(pairs):
            verdict = "keep" if len(pairs) == 1 else STRATEGIES[settings["synthetic"]][i > 0]
            reported = i == 0 and len(pairs) > 1
            _decide(
                outcome, event_id, name, copies, verdict, reported, namespace, surrogate, batch_id, settings
            )
    return outcome


def _looked_up(row, missing, surrogate, namespace):
    "The id that a row came with first, if its own is what was made of that one."
    own, original, real = row["event_id"], row.get("original_event_id"), row["event_fingerprint"]
    if not original:
        return own
    if not real and missing == "unique":
        return original if re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab].*", own) else own
    name = _marked(real) if real else surrogate(row) if missing == "surrogate" else "surrogate-id"
    return original if own == str(uuid5(namespace, f"{_safe(original)}/{name}")) else own


def _marked(fingerprint):
    "A real one that looks like a stand-in gets a mark more."
    return "=" * bool(re.match("=*surrogate-", fingerprint)) + fingerprint


def _pairs_of(events, missing, surrogate, batch_id):
    "The pairs of an id as (name, copies), in the total order."
    pairs, lone = {}, 0
    for row in events:
        if row["event_fingerprint"]:
            key = (True, _marked(row["event_fingerprint"]))
        elif missing == "unique":
            lone += 1  # its ordinal among the events of this id that lack a fingerprint
            key = (False, f"{surrogate(row)}/{batch_id or ''}/{lone}")
        else:
            key = (False, surrogate(row) if missing == "surrogate" else "surrogate-id")
        pairs.setdefault(key, []).append(row)
    return [(name, copies) for (_, name), copies in pairs.items()]


def _decide(outcome, event_id, name, copies, verdict, reported, namespace, surrogate, batch_id, settings):
    "What happens to the copies of one pair."
    own = copies[0]["event_id"]
    # what was renamed before is known by the id that it came with first, and leaves under its own
    own = own if own != event_id else None
    new_id = (own or str(uuid5(namespace, f"{_safe(event_id)}/{name}"))) if verdict == "rename" else None
    stays_as = {"keep": own or event_id, "rename": new_id}.get(verdict)
    if stays_as:
        outcome.kept.append(_kept(copies[0], stays_as, event_id))
    else:
        outcome.dropped.append(_dropped(copies[0], "synthetic", None, None))
    in_batch = batch_id if stays_as else None
    outcome.dropped += [_dropped(copy, "natural", stays_as, in_batch) for copy in copies[1:]]
    if verdict != "keep":
        said = (verdict, "synthetic")
    elif len(copies) > 1:
        said = ("keep_first", "natural")
    elif reported:
        said = ("keep_first", "synthetic")
    else:
        return
    stand_in = "surrogate-id" if settings["missing_fingerprint"] == "id" else surrogate(copies[0])
    outcome.verdicts.append(
        {
            "event_id": event_id,
            "event_fingerprint": copies[0]["event_fingerprint"] or stand_in,
            "copies": len(copies),
            "verdict": said[0],
            "reason": said[1],
            "new_event_id": new_id,
            "seen_in_batch": None,
        }
    )


def _safe(event_id):
    "So that (a/b, c) and (a, b/c) have different names."
    return event_id.replace("%", "%25").replace("/", "%2F")


def _kept(row, stays_as, looked_up):
    original = row.get("original_event_id")
    if stays_as not in (None, looked_up):
        original = original or looked_up
    return {**row, "event_id": stays_as or row["event_id"], "original_event_id": original}


def _dropped(row, reason, kept_event_id, kept_in_batch):
    dedup = {"reason": reason, "kept_event_id": kept_event_id, "kept_in_batch": kept_in_batch}
    return {**row, "dedup": dedup}
