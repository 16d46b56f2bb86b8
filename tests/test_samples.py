"""The samples: the same on any cluster, every kind there, good lines good, bad lines bad, and the truth true."""
import csv, gzip, json, re
from collections import Counter, defaultdict
from pathlib import Path
import pytest
from pyspark.sql import functions as F
from dedup_nb.config import ConfigError
from dedup_nb.read import ENRICHED
from dedup_nb.samples import KINDS, sample_rows, truth, write_samples
from spread import COMPILED, configured

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "data_samples"
NAMES = [name for name, _ in ENRICHED]
KIND_OF = dict(ENRICHED)
AT = {name: i for i, name in enumerate(NAMES)}
BATCHES = ["2026-11-18-00-00-00", "2026-11-19-00-00-00", "2026-11-20-00-00-00"]
# what a client sends; the list of the design, for the surrogate of a missing fingerprint
CLIENT = [n for n in NAMES if n in """app_id platform dvce_created_tstamp event txn_id name_tracker v_tracker user_id user_fingerprint
    domain_userid domain_sessionidx domain_sessionid page_url page_title page_referrer contexts unstruct_event useragent br_lang br_cookies
    br_colordepth br_viewwidth br_viewheight os_timezone dvce_screenwidth dvce_screenheight true_tstamp event_vendor event_name event_format
    event_version""".split() or n.startswith(("se_", "tr_", "ti_", "pp_", "br_features_", "doc_")) and not n.endswith("_base")]


@pytest.fixture(scope="module", autouse=True)
def compiled(spark):
    "Many rows from wide expressions: here generated code pays."
    with configured(spark, COMPILED): yield


@pytest.fixture(scope="module")
def written():
    "batch_id -> the lines of its file."
    files = {b: SAMPLES / f"run={b}" / "part-00000.txt.gz" for b in BATCHES}
    return {b: gzip.decompress(f.read_bytes()).decode().split("\n")[:-1] for b, f in files.items()}


@pytest.fixture(scope="module")
def told():
    with open(SAMPLES / "truth.csv", newline="") as file: return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def planned(spark):
    "The default sample, made anew."
    return sample_rows(spark).collect()


def line_of(written, row): return written[row["batch_id"]][int(row["line_number"]) - 1]


# the rules for a column, written from the format's description and apart from the reader
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
def _int(text): return bool(re.fullmatch(r"-?\d+", text)) and -2**31 <= int(text) < 2**31
def _double(text): return bool(re.fullmatch(r"-?\d+(\.\d+)?", text))
def _envelope(name):
    def check(text):
        try: outer = json.loads(text)
        except ValueError: return False
        kind, inner = ("unstruct_event", [outer["data"]]) if name == "unstruct_event" else ("contexts", outer["data"])
        return (outer["schema"].startswith(f"iglu:com.snowplowanalytics.snowplow/{kind}/jsonschema/1-0-") and isinstance(inner, list)
                and all(isinstance(e, dict) and set(e) == {"schema", "data"} for e in inner))
    return check

def wrong_columns(cells):
    "The names of the columns that do not decode."
    checks = {"int": _int, "double": _double, "boolean": lambda t: t in "01", "timestamp": lambda t: bool(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", t))}
    def check(name):
        if name == "event_id": return UUID.fullmatch
        if name in ("contexts", "derived_contexts", "unstruct_event"): return _envelope(name)
        return checks.get(KIND_OF[name], lambda t: True)
    required = ("collector_tstamp", "event_id", "v_collector", "v_etl")
    return {n for n, text in zip(NAMES, cells) if (not check(n)(text) if text else n in required)}


def test_the_folder_holds_what_the_generator_makes(planned, written):
    made = defaultdict(dict)
    for row in planned: made[row["batch_id"]][row["line_number"]] = row["line"]
    assert list(written) == BATCHES
    for batch in BATCHES: assert written[batch] == [made[batch][n] for n in sorted(made[batch])] and sorted(made[batch]) == list(range(1, 4001))


def test_the_written_truth_is_the_truth(spark, told):
    fresh = {(r["batch_id"], str(r["line_number"])): {k: str(v) for k, v in r.asDict().items()} for r in truth(sample_rows(spark)).collect()}
    assert [(r["batch_id"], int(r["line_number"])) for r in told] == [(b, n) for b in BATCHES for n in range(1, 4001)]
    for row in told: assert row == fresh[row["batch_id"], row["line_number"]]


def test_the_folder_is_small():
    assert sum(f.stat().st_size for f in SAMPLES.rglob("*.gz")) < 4_000_000 and (SAMPLES / "truth.csv").stat().st_size < 1_500_000


def test_partitions_and_time_zone_change_nothing(spark):
    def made(partitions, zone):
        spark.conf.set("spark.sql.leafNodeDefaultParallelism", partitions)
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            rows = sample_rows(spark, events=500, batches=2, seed=3)
            return rows.collect(), sorted(truth(rows).collect())
        finally:
            spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert made(1, "UTC") == made(7, "America/St_Johns")


def test_another_seed_makes_other_events(spark):
    ids = [{r["event_id"] for r in sample_rows(spark, events=500, batches=1, seed=s).where("kind = 'unique'").select("event_id").collect()} for s in (1, 2)]
    assert len(ids[0]) == len(ids[1]) and not ids[0] & ids[1]


def test_every_kind_is_there(told):
    assert set(Counter(r["kind"] for r in told)) == set(KINDS)


def test_good_lines_decode_and_bad_lines_do_not(written, told):
    expected = {"bad_id": {"event_id"}, "bad_no_id": {"event_id"}, "bad_int": {"br_viewwidth"}, "bad_double": {"geo_latitude"}, "bad_boolean": {"br_cookies"},
                "bad_timestamp": {"dvce_created_tstamp"}, "bad_json": {"contexts"}, "bad_envelope": {"unstruct_event"},
                "bad_several": {"br_viewwidth", "geo_latitude", "br_cookies", "dvce_created_tstamp", "contexts"},
                "bad_twin": {"br_cookies"}, "bad_cross_twin": {"dvce_created_tstamp"}}
    missing = set()
    for row in told:
        line, kind = line_of(written, row), row["kind"]
        cells = line.split("\t")
        if row["fate_alone"] != "bad": assert len(cells) == 131 and not wrong_columns(cells), (kind, wrong_columns(cells))
        elif kind == "bad_empty": assert line == ""
        elif kind == "bad_not_tsv": assert line and len(cells) == 1
        elif kind in ("bad_130", "bad_132"): assert len(cells) == int(kind[-3:])
        elif kind == "bad_required": missing |= wrong_columns(cells)
        else: assert len(cells) == 131 and wrong_columns(cells) == expected[kind], kind
    assert missing and missing <= {"collector_tstamp", "v_collector", "v_etl"}
    assert {r["fate_alone"] for r in told if r["kind"].startswith("bad_") and "twin" not in r["kind"]} == {"bad"}


def test_the_ids_and_fingerprints_of_the_truth_are_those_of_the_lines(written, told):
    for row in told:
        cells = line_of(written, row).split("\t")
        if len(cells) < 130 or not UUID.fullmatch(cells[AT["event_id"]]): assert row["event_id"] == ""
        else: assert row["event_id"] == cells[AT["event_id"]].lower()
        assert row["event_fingerprint"] == (cells[AT["event_fingerprint"]] if len(cells) > AT["event_fingerprint"] else "")
    assert any(c != c.lower() for c in (line_of(written, r).split("\t")[6] for r in told if r["kind"] == "upper"))


def test_times_are_in_their_order(written, told):
    for row in told:
        if row["fate_alone"] == "bad": continue
        t = {n: c for n, c in zip(NAMES, line_of(written, row).split("\t")) if n.endswith("_tstamp")}
        assert not t["etl_tstamp"] or t["etl_tstamp"] > t["collector_tstamp"]
        assert t["collector_tstamp"] > t["dvce_sent_tstamp"] > t["dvce_created_tstamp"] and t["collector_tstamp"] > t["derived_tstamp"]


def fates(rows, known_pairs, known_ids):
    """The fate and reason of each row of one batch, and its tie (place, id): "Semantics, exactly", in plain Python.

    Rows are (number, cells). A tie has rows of one id whose order columns are equal: there the order is any.
    """
    def place(cells): return tuple((cells[AT[c]] == "", cells[AT[c]]) for c in ("etl_tstamp", "collector_tstamp"))
    def pair(cells): return ("is", cells[AT["event_fingerprint"]]) if cells[AT["event_fingerprint"]] else ("like", *(cells[AT[c]] for c in CLIENT))
    events, out = defaultdict(list), {}
    for number, cells in rows: events[cells[AT["event_id"]].lower()].append((place(cells), number, pair(cells)))
    for event_id, copies in events.items():
        seen = set()
        for where, number, key in sorted(copies):
            if (event_id, key) in known_pairs: fate = ("dropped", "natural_cross_batch")
            elif key in seen: fate = ("dropped", "natural")
            elif event_id in known_ids: fate = ("renamed", "synthetic_cross_batch")
            else: fate = ("renamed", "synthetic") if seen else ("kept", "")
            seen.add(key)
            out[number] = (fate, (event_id, where))
    return out, {(i, k) for i, copies in events.items() for _, _, k in copies}


@pytest.mark.parametrize("view", ["alone", "known"])
def test_a_plain_reference_on_the_lines_tells_the_same_fates(written, told, view):
    known = set()
    for batch in BATCHES:
        mine = [r for r in told if r["batch_id"] == batch]
        good = [(int(r["line_number"]), line_of(written, r).split("\t")) for r in mine if r["fate_alone"] != "bad"]
        found, pairs = fates(good, known if view == "known" else set(), {i for i, _ in known} if view == "known" else set())
        sizes, groups = Counter(tie for _, tie in found.values()), defaultdict(list)
        for r in mine:
            number, said = int(r["line_number"]), (r[f"fate_{view}"], r[f"reason_{view}"])
            if said[0] == "bad": continue
            fate, tie = found[number]
            assert bool(r["tie"]) == (sizes[tie] > 1)
            if r["tie"]: groups[r["tie"]].append((tie, fate, said))
            else: assert fate == said, (r["kind"], number)
        for group in groups.values():
            assert len({tie for tie, _, _ in group}) == 1
            assert Counter(f for _, f, _ in group) == Counter(s for _, _, s in group)
        known |= pairs


def test_a_bad_line_with_the_same_id_takes_nothing_from_the_good_one(told):
    twins = [r for r in told if r["kind"] in ("bad_twin", "bad_cross_twin")]
    assert Counter(r["fate_known"] for r in twins) == {"bad": len(twins) / 2, "kept": len(twins) / 2}


def test_large_samples_repeat_two_to_three_percent(spark):
    fates = truth(sample_rows(spark, events=100_000, batches=1))
    n, repeats = fates.agg(F.count("*"), F.count_if(~F.col("fate_alone").isin("kept", "bad"))).first()
    assert n == 100_000 and 0.02 < repeats / n < 0.035


def test_a_hot_id_takes_its_share(spark):
    hottest = truth(sample_rows(spark, events=5000, batches=1, hot_share=.1)).groupBy("event_id").count().agg(F.max("count")).first()[0]
    assert hottest == 500


def test_a_doubled_batch_has_every_row_twice(spark):
    fates = truth(sample_rows(spark, events=3000, batches=1, doubled=True, hot_share=0))
    good = fates.where("fate_alone <> 'bad'").groupBy("event_id", "event_fingerprint").count()
    assert good.where("count % 2 = 1").count() == 0
    assert fates.where("fate_alone = 'dropped'").count() >= 1400


def test_bad_lines_and_kinds_can_be_left_out(spark):
    rows = sample_rows(spark, events=1000, batches=1, bad_lines=False, hot_share=0, replayed=.5, tie=0)
    counts = dict(rows.groupBy("kind").count().collect())
    assert counts["replayed"] == 500 and "tie" not in counts and not any(k.startswith(("bad", "hot")) for k in counts)


@pytest.mark.parametrize("arguments, words", [
    ({"replayd": .1}, "Did you mean replayed?"), ({"replayed": 2}, "Write 2 % as 0.02"), ({"events": 100}, "events=100 has no room"),
    ({"events": 0}, "Pass events=4000"), ({"hot_share": 10}, "Write 10 % as 0.1")])
def test_it_refuses_what_it_cannot_make(spark, arguments, words):
    with pytest.raises(ConfigError, match=re.escape(words)): sample_rows(spark, **arguments)


def test_the_same_call_writes_the_same_bytes(spark, tmp_path):
    for name in "ab": write_samples(spark, tmp_path / name, events=500, batches=1)
    first, second = ({f.relative_to(tmp_path / n): f.read_bytes() for f in (tmp_path / n).rglob("*") if f.is_file()} for n in "ab")
    assert first == second and len(first) == 2


def test_many_files_hold_the_lines_in_the_order_of_their_names(spark, tmp_path):
    write_samples(spark, tmp_path, events=500, batches=2, files=3)
    rows = {(r["batch_id"], r["line_number"]): r["line"] for r in sample_rows(spark, events=500, batches=2).collect()}
    for batch in BATCHES[:2]:
        parts = sorted((tmp_path / f"run={batch}").glob("part-*.gz"))
        lines = [line for part in parts for line in gzip.decompress(part.read_bytes()).decode().split("\n")[:-1]]
        assert len(parts) == 3 and lines == [rows[batch, n] for n in range(1, 501)]
    assert spark.read.parquet(str(tmp_path / "truth")).count() == 1000
