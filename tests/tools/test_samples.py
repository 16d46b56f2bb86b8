"""The samples: the same on any cluster, each kind there, good lines good, bad lines bad, the truth true."""

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from spread import COMPILED, configured

from dedup_nb.base.errors import ConfigError
from dedup_nb.formats.enriched import ENRICHED, NAMES, REQUIRED
from dedup_nb.tools.samples import KINDS, sample_rows, truth, write_samples

SAMPLES = Path(__file__).resolve().parents[2] / "data_samples"
KIND_OF = dict(ENRICHED)
AT = {name: i for i, name in enumerate(NAMES)}
BATCHES = ["2026-11-18-00-00-00", "2026-11-19-00-00-00", "2026-11-20-00-00-00"]
SMALL = {"events": 500, "batches": 2, "seed": 3}
# what a client sends; the list of the design, for the surrogate of a missing fingerprint
CLIENT = """
app_id platform dvce_created_tstamp event txn_id name_tracker v_tracker user_id user_fingerprint domain_userid
domain_sessionidx domain_sessionid page_url page_title page_referrer contexts unstruct_event useragent br_lang
br_cookies br_colordepth br_viewwidth br_viewheight os_timezone dvce_screenwidth dvce_screenheight true_tstamp
event_vendor event_name event_format event_version
""".split()
BY_PREFIX = ("se_", "tr_", "ti_", "pp_", "br_features_", "doc_")
CLIENT += [n for n in NAMES if n.startswith(BY_PREFIX) and not n.endswith("_base")]


@pytest.fixture(scope="module", autouse=True)
def compiled(spark):
    "Many rows from wide expressions: here generated code pays."
    with configured(spark, COMPILED):
        yield


def unpacked(folder):
    "batch_id -> the lines of its files, in the order of their names."
    lines = {}
    for batch in sorted(folder.glob("run=*")):
        parts = [gzip.decompress(part.read_bytes()) for part in sorted(batch.glob("part-*.gz"))]
        lines[batch.name.removeprefix("run=")] = b"".join(parts).decode().split("\n")[:-1]
    return lines


def in_batches(rows):
    "batch_id -> the lines of collected rows, by their numbers."
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["batch_id"], row["line_number"])):
        lines[row["batch_id"]].append(row["line"])
        assert row["line_number"] == len(lines[row["batch_id"]])
    return dict(lines)


@pytest.fixture(scope="module")
def written():
    return unpacked(SAMPLES)


@pytest.fixture(scope="module")
def told(written):
    "The truth of the folder, each row with its `line` and the `cells` of it."
    with open(SAMPLES / "truth.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["line"] = written[row["batch_id"]][int(row["line_number"]) - 1]
        row["cells"] = row["line"].split("\t")
    return rows


@pytest.fixture(scope="module")
def small(spark):
    "A small sample and its truth, collected."
    rows = sample_rows(spark, **SMALL).cache()
    yield rows.collect(), truth(rows).collect()
    rows.unpersist()


# the rules for a column, written from the format's description and apart from the reader
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}")
ENVELOPES = {"contexts": "contexts", "derived_contexts": "contexts", "unstruct_event": "unstruct_event"}


def is_int(text):
    return bool(re.fullmatch(r"-?\d+", text)) and -(2**31) <= int(text) < 2**31


def is_envelope(text, kind):
    try:
        outer = json.loads(text)
    except ValueError:
        return False
    inner = [outer["data"]] if kind == "unstruct_event" else outer["data"]
    right = outer["schema"].startswith(f"iglu:com.snowplowanalytics.snowplow/{kind}/jsonschema/1-0-")
    return right and isinstance(inner, list) and all(set(entity) == {"schema", "data"} for entity in inner)


RULES = {
    "int": is_int,
    "double": re.compile(r"-?\d+(\.\d+)?").fullmatch,
    "boolean": lambda text: text in "01",
    "timestamp": TIME.fullmatch,
    "string": lambda text: True,
}


def is_wrong(name, text):
    if not text:
        return name in REQUIRED
    if name in ENVELOPES:
        return not is_envelope(text, ENVELOPES[name])
    rule = UUID.fullmatch if name == "event_id" else RULES[KIND_OF[name]]
    return not rule(text)


def wrong_columns(cells):
    return {name for name, text in zip(NAMES, cells) if is_wrong(name, text)}


# what the files hold


@pytest.mark.slow
def test_the_folder_holds_what_the_generator_makes(spark, tmp_path, written):
    write_samples(spark, tmp_path)
    assert unpacked(tmp_path) == written and list(written) == BATCHES
    assert (tmp_path / "truth.csv").read_bytes() == (SAMPLES / "truth.csv").read_bytes()
    made, kept = ({f.relative_to(top) for f in top.rglob("*")} for top in (tmp_path, SAMPLES))
    assert made == kept
    for file in tmp_path.rglob("*.gz"):
        # no name, no time: the same lines give the same bytes on any day
        assert file.read_bytes()[:8] == b"\x1f\x8b\x08" + bytes(5)


def test_the_truth_has_a_row_for_each_line_in_their_order(told, written):
    numbered = [(batch, number) for batch in BATCHES for number in range(1, 4001)]
    assert [(r["batch_id"], int(r["line_number"])) for r in told] == numbered
    assert [len(lines) for lines in written.values()] == [4000] * 3


def test_the_folder_is_small():
    assert sum(f.stat().st_size for f in SAMPLES.rglob("*.gz")) < 4_000_000
    assert (SAMPLES / "truth.csv").stat().st_size < 1_500_000


def test_every_kind_is_there(told):
    assert {r["kind"] for r in told} == set(KINDS)


WRONG = {
    "bad_id": {"event_id"},
    "bad_no_id": {"event_id"},
    "bad_int": {"br_viewwidth"},
    "bad_double": {"geo_latitude"},
    "bad_boolean": {"br_cookies"},
    "bad_timestamp": {"dvce_created_tstamp"},
    "bad_json": {"contexts"},
    "bad_envelope": {"unstruct_event"},
    "bad_several": {"br_viewwidth", "geo_latitude", "br_cookies", "dvce_created_tstamp", "contexts"},
    "bad_twin": {"br_cookies"},
    "bad_cross_twin": {"dvce_created_tstamp"},
}
COLUMNS = {"bad_empty": 1, "bad_not_tsv": 1, "bad_130": 130, "bad_132": 132}


def test_good_lines_decode(told):
    good = [r for r in told if r["fate_alone"] != "bad"]
    assert len(good) > 11_000
    for row in good:
        assert len(row["cells"]) == 131 and not wrong_columns(row["cells"]), row


def test_bad_lines_do_not_decode(told):
    bad, missing = [r for r in told if r["fate_alone"] == "bad"], set()
    assert {r["kind"] for r in bad} == {*WRONG, *COLUMNS, "bad_required"}
    for row in bad:
        assert len(row["cells"]) == COLUMNS.get(row["kind"], 131)
        if row["kind"] == "bad_required":
            missing |= wrong_columns(row["cells"])
        elif row["kind"] in WRONG:
            assert wrong_columns(row["cells"]) == WRONG[row["kind"]], row["kind"]
        elif row["kind"] in ("bad_empty", "bad_not_tsv"):
            assert bool(row["line"]) == (row["kind"] == "bad_not_tsv")
    assert missing and missing <= {"collector_tstamp", "v_collector", "v_etl"}
    mixed = {r["kind"] for r in told if r["kind"].startswith("bad_") and r["fate_alone"] != "bad"}
    assert mixed == {"bad_twin", "bad_cross_twin"}


def test_the_ids_and_fingerprints_of_the_truth_are_those_of_the_lines(told):
    for row in told:
        cells = row["cells"] + [""] * 131
        event_id = cells[AT["event_id"]]
        assert row["event_id"] == (event_id.lower() if UUID.fullmatch(event_id) else "")
        assert row["event_fingerprint"] == cells[AT["event_fingerprint"]]
    upper = [r["cells"][AT["event_id"]] for r in told if r["kind"] == "upper"]
    assert any(event_id != event_id.lower() for event_id in upper)


def test_times_are_in_their_order(told):
    for row in told:
        if row["fate_alone"] != "bad":
            t = {name: row["cells"][AT[name]] for name in NAMES if name.endswith("_tstamp")}
            assert not t["etl_tstamp"] or t["etl_tstamp"] > t["collector_tstamp"]
            assert t["collector_tstamp"] > t["dvce_sent_tstamp"] > t["dvce_created_tstamp"]
            assert t["collector_tstamp"] > t["derived_tstamp"]


# what the truth says


def place(cells):
    "The order columns, missing ones last."
    return tuple((cells[AT[c]] == "", cells[AT[c]]) for c in ("etl_tstamp", "collector_tstamp"))


def pair(cells):
    "The fingerprint, or what stands in for it."
    printed = cells[AT["event_fingerprint"]]
    return ("is", printed) if printed else ("like", *(cells[AT[c]] for c in CLIENT))


def fates_and_ties(rows, known_pairs, known_ids):
    """The fate and tie (id, place) of each row of one batch, and its pairs.

    "Semantics, exactly", in plain Python. Rows are (number, cells). A tie has rows of one id whose order
    columns are equal: there the order is any.
    """
    events, out = defaultdict(list), {}
    for number, cells in rows:
        events[cells[AT["event_id"]].lower()].append((place(cells), number, pair(cells)))
    for event_id, copies in events.items():
        seen = set()
        for where, number, key in sorted(copies):
            if (event_id, key) in known_pairs:
                fate = ("dropped", "natural_cross_batch")
            elif key in seen:
                fate = ("dropped", "natural")
            elif event_id in known_ids:
                fate = ("renamed", "synthetic_cross_batch")
            else:
                fate = ("renamed", "synthetic") if seen else ("kept", "")
            seen.add(key)
            out[number] = (fate, (event_id, where))
    return out, {(event_id, key) for event_id, copies in events.items() for _, _, key in copies}


@pytest.mark.parametrize("view", ["alone", "known"])
def test_a_plain_reference_on_the_lines_tells_the_same_fates(told, view):
    known = set()
    for batch in BATCHES:
        good = {int(r["line_number"]): r for r in told if r["batch_id"] == batch and r["fate_alone"] != "bad"}
        before = known if view == "known" else set()
        rows = [(number, r["cells"]) for number, r in good.items()]
        found, pairs = fates_and_ties(rows, before, {event_id for event_id, _ in before})
        sizes, groups = Counter(tie for _, tie in found.values()), defaultdict(list)
        for number, r in good.items():
            (fate, tie), said = found[number], (r[f"fate_{view}"], r[f"reason_{view}"])
            assert bool(r["tie"]) == (sizes[tie] > 1)
            assert r["tie"] or fate == said, (r["kind"], number)
            groups[r["tie"]].append((tie, fate, said))
        groups.pop("")
        for group in groups.values():
            ties, wanted, said = zip(*group)
            assert len(set(ties)) == 1 and Counter(wanted) == Counter(said)
        known |= pairs


def test_a_bad_line_with_the_same_id_takes_nothing_from_the_good_one(told):
    twins = [r for r in told if r["kind"] in ("bad_twin", "bad_cross_twin")]
    assert Counter(r["fate_known"] for r in twins) == {"bad": len(twins) / 2, "kept": len(twins) / 2}


def test_the_truth_of_six_lines(spark):
    rows = [("1", 1, "A", "t1"), ("1", 2, "A", "t2"), ("1", 3, "B", "t3")]
    rows += [("2", 1, "A", "t4"), ("2", 2, "C", ""), ("2", 3, "B", "t5")]  # the second one has no etl_tstamp
    frame = spark.createDataFrame(rows, "batch_id string, line_number int, pair string, etl_tstamp string")
    same = ["'' as line", "'mixed' as kind", "false as is_bad", "'x' as event_id", "'t' as collector_tstamp"]
    found = truth(frame.selectExpr("*", *same, "pair as event_fingerprint")).collect()
    assert {(r["batch_id"], r["line_number"]): tuple(r[5:]) for r in found} == {
        ("1", 1): ("", "kept", "", "kept", ""),
        ("1", 2): ("", "dropped", "natural", "dropped", "natural"),
        ("1", 3): ("", "renamed", "synthetic", "renamed", "synthetic"),
        ("2", 1): ("", "kept", "", "dropped", "natural_cross_batch"),
        ("2", 3): ("", "renamed", "synthetic", "dropped", "natural_cross_batch"),
        ("2", 2): ("", "renamed", "synthetic", "renamed", "synthetic_cross_batch"),
    }


# what can be asked for


@pytest.mark.slow
def test_another_seed_makes_other_events(small, told):
    ids, others = ({r["event_id"] for r in rows if r["kind"] == "unique"} for rows in (told, small[0]))
    assert len(others) > 300 and not ids & others


@pytest.mark.slow
def test_large_samples_repeat_two_to_three_percent(spark):
    good = sample_rows(spark, events=100_000, batches=1).where("not is_bad")
    # alone, each id keeps one line; the others are dropped or renamed
    n, ids = good.agg(F.count("*"), F.countDistinct("event_id")).first()
    assert 99_000 < n < 100_000 and 0.02 < (n - ids) / n < 0.035


def test_shares_are_those_that_were_asked_for(spark):
    asked = {"bad_lines": False, "hot_share": 0.1, "replayed": 0.5, "tie": 0}
    counts = (
        sample_rows(spark, events=5000, batches=1, **asked).groupBy("kind", "event_id").count().toPandas()
    )
    lines = counts.groupby("kind")["count"].sum()
    assert lines["replayed"] == 2500 and "tie" not in lines
    assert counts["count"].max() == 500
    assert not any(kind.startswith("bad") for kind in lines.index)


@pytest.mark.slow
def test_a_doubled_batch_has_every_row_twice(spark):
    fates = truth(sample_rows(spark, events=3000, batches=1, doubled=True, hot_share=0)).toPandas()
    good = fates[fates["fate_alone"] != "bad"]
    assert (good.groupby(["event_id", "event_fingerprint"]).size() % 2 == 0).all()
    assert (fates["fate_alone"] == "dropped").sum() >= 1400
    assert not fates["kind"].str.startswith("hot").any() and "doubled" in set(fates["kind"])


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"replayd": 0.1}, "Did you mean replayed?"),
        ({"unique": 0.1}, "'unique' is none of"),
        ({"replayed": 2}, "Write 2 % as 0.02"),
        ({"events": 100}, "events=100 has no room"),
        ({"events": 0}, "Pass events=4000"),
        ({"batches": 0}, "Pass events=4000"),
        ({"hot_share": 10}, "Write 10 % as 0.1"),
    ],
)
def test_it_refuses_what_it_cannot_make(spark, arguments, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        sample_rows(spark, **arguments)


@pytest.mark.slow
def test_files_partitions_and_time_zone_change_nothing(spark, tmp_path, small):
    other = {"spark.sql.shuffle.partitions": "7", "spark.sql.session.timeZone": "America/St_Johns"}
    with configured(spark, other):
        write_samples(spark, tmp_path, files=3, **SMALL)
        found = spark.read.parquet(str(tmp_path / "truth")).collect()
    parts = [len(list((tmp_path / f"run={batch}").glob("part-*.gz"))) for batch in BATCHES[:2]]
    assert parts == [3, 3] and unpacked(tmp_path) == in_batches(small[0])
    assert sorted(found) == sorted(small[1])
