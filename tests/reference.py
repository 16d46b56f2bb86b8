"""What `deduplicate` has to give, in plain Python: one batch, no manifest, a row is a dict.

Slow and plain on purpose, and free of the package's code. Times are texts in one UTC form, which sort as the times do.
"""
import hashlib, json
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import uuid5

PRESETS = {"none": {}, "snowplow": {"synthetic": "rename_all", "missing_fingerprint": "unique"}}
# strategy -> (verdict on the first pair of an id, verdict on a later one); keep = as if it were alone
STRATEGIES = {"rename_later": ("keep", "rename"), "rename_all": ("rename", "rename"), "quarantine": ("keep", "quarantine"),
              "delete_all": ("drop", "drop"), "off": ("keep", "keep")}


@dataclass
class Outcome:
    kept:list = field(default_factory=list)
    dropped:list = field(default_factory=list)
    bad:list = field(default_factory=list)
    verdicts:list = field(default_factory=list)


def sha256_of(row, columns):
    "SHA-256 of the columns as JSON with nulls kept."
    text = json.dumps({c: row[c] for c in columns}, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def deduplicate(
    rows,            # dicts with event_id, event_fingerprint and more
    *,
    namespace,       # UUID, of all new ids
    row_hash,        # row -> text, the last tie-break
    surrogate,       # row -> text that stands in for a missing fingerprint
    order=("etl_tstamp", "collector_tstamp"),
    batch_id=None,
    natural="keep_first",
    compat="none",
    **chosen,        # synthetic, missing_fingerprint
):
    settings = {"synthetic": "rename_later", "missing_fingerprint": "surrogate", **PRESETS[compat], **chosen}
    outcome, events_of = Outcome(), defaultdict(list)
    for row in rows:
        if row["event_id"] in (None, ""): outcome.bad.append(row)
        elif natural == "off": outcome.kept.append(_kept(row))
        else: events_of[row["event_id"]].append(row)

    def place(row):
        early = lambda c: compat == "snowplow" and c == "etl_tstamp"
        return [((row[c] is not None) if early(c) else (row[c] is None), row[c]) for c in order] + [row_hash(row)]

    for event_id, events in events_of.items():
        pairs, lone = {}, 0  # (is real, name) -> copies; the first pair put in is the first in the total order
        for row in sorted(events, key=place):
            if row["event_fingerprint"] not in (None, ""): key = (True, row["event_fingerprint"])
            elif settings["missing_fingerprint"] == "surrogate": key = (False, surrogate(row))
            else:
                lone += 1  # its ordinal among the events of this id that lack a fingerprint
                key = (False, f"{surrogate(row)}/{batch_id or ''}/{lone}")
            pairs.setdefault(key, []).append(row)
        on_first, on_later = STRATEGIES[settings["synthetic"]]
        for i, ((_, name), copies) in enumerate(pairs.items()):
            verdict = "keep" if len(pairs) == 1 else on_first if i == 0 else on_later
            new_id = str(uuid5(namespace, f"{event_id}/{name}")) if verdict == "rename" else None
            stays_as = {"keep": event_id, "rename": new_id}.get(verdict)
            if stays_as: outcome.kept.append(_kept(copies[0], new_id))
            else: outcome.dropped.append(_dropped(copies[0], "synthetic", None, None))
            outcome.dropped += [_dropped(copy, "natural", stays_as, batch_id if stays_as else None) for copy in copies[1:]]
            if verdict != "keep": said = (verdict, "synthetic")
            elif len(copies) > 1: said = ("keep_first", "natural")
            elif i == 0 and len(pairs) > 1: said = ("keep_first", "synthetic")
            else: continue
            fingerprint = copies[0]["event_fingerprint"] or surrogate(copies[0])
            outcome.verdicts.append({"event_id": event_id, "event_fingerprint": fingerprint, "copies": len(copies), "verdict": said[0],
                                     "reason": said[1], "new_event_id": new_id, "seen_in_batch": None})
    return outcome


def _kept(row, new_id=None):
    original = row.get("original_event_id")
    if new_id: original = row["event_id"] if original is None else original
    return {**row, "event_id": new_id or row["event_id"], "original_event_id": original}


def _dropped(row, reason, kept_event_id, kept_in_batch):
    return {**row, "dedup": {"reason": reason, "kept_event_id": kept_event_id, "kept_in_batch": kept_in_batch}}
