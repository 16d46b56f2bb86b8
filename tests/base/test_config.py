"""Settings: where they come from, what is wrong with them, and that everything is made from the one table."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from conftest import ROOT

from dedup_nb.base.config import (
    GROUPS,
    Config,
    Limits,
    Recipe,
    limits_of,
    parameters_in,
    places_of,
    recipe_of,
    settings,
    settings_table,
)
from dedup_nb.base.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")


def ini(text):
    Path("settings.ini").write_text(text)


def mistakes(*args, **parameters):
    with pytest.raises(ConfigError) as wrong:
        Config.load(*args, **parameters)
    return str(wrong.value)


# --- where settings come from


def test_without_a_settings_file_the_defaults_hold():
    config = Config.load()
    assert (config.input_format, config.synthetic, config.retention_days) == (
        "auto",
        "rename_later",
        180,
    )
    assert (config.order_by, config.missing_fingerprint, config.source("synthetic")) == ((), None, "default")


def test_each_layer_beats_the_one_below(monkeypatch):
    ini(
        "[DEFAULT]\nretention_days = 1\nbatch_pattern = a=*\nsynthetic = off\nmode = decide\n"
        "[prod]\nbatch_pattern = b=*\nsynthetic = quarantine\nmode = decide\n"
    )
    monkeypatch.setenv("DEDUP_SYNTHETIC", "rename_all")
    monkeypatch.setenv("DEDUP_MODE", "decide")
    config = Config.load("prod", mode="apply")
    expected = {
        "retention_days": (1, "settings.ini [DEFAULT]"),
        "batch_pattern": ("b=*", "settings.ini [prod]"),
        "synthetic": ("rename_all", "DEDUP_SYNTHETIC"),
        "mode": ("apply", "parameter"),
        "manifest": ("lake", "default"),
    }
    assert {n: (getattr(config, n), config.source(n)) for n in expected} == expected


def test_file_and_profile_may_come_from_the_environment(monkeypatch):
    Path("mine.ini").write_text("[night]\nretention_days = 7\n")
    monkeypatch.setenv("DEDUP_SETTINGS", "mine.ini")
    monkeypatch.setenv("DEDUP_PROFILE", "night")
    monkeypatch.setenv("DEDUP_TEST_DYNAMODB_ENDPOINT", "of the test suite, no setting")
    monkeypatch.setenv("DEDUP_SYNTHETIC", " ")  # unset
    assert Config.load().retention_days == 7
    Path("mine.ini").write_text("\ufeff[night]\nretention_days = 8\n")  # as editors on Windows begin a file
    assert Config.load().retention_days == 8


def test_services_of_kubernetes_are_no_settings(monkeypatch):
    names = (
        "SERVICE_HOST SERVICE_PORT SERVICE_PORT_HTTP PORT PORT_80_TCP PORT_80_TCP_ADDR PORT_80_TCP_PROTO "
        "UI_SVC_SERVICE_HOST UI_SVC_PORT UI_SVC_PORT_80_TCP"
    ).split()
    for name in names:
        monkeypatch.setenv(f"DEDUP_{name}", "tcp://10.0.0.1:80")
    assert Config.load().chosen() == {}
    monkeypatch.setenv("DEDUP_PORTS", "80")
    with pytest.raises(ConfigError, match="Unknown setting 'ports'"):
        Config.load()


def test_parameters_alone_look_at_no_file_and_no_environment(monkeypatch):
    ini("[DEFAULT]\nretention_days = 1\n")
    monkeypatch.setenv("DEDUP_MODE", "decide")
    assert Config() == Config.passed() and Config.passed().mode == "apply"
    with pytest.raises(ConfigError, match="Did you mean mode?"):
        Config.passed(modes="decide")


@pytest.mark.parametrize(
    "text, profile, words",
    [
        ("[prod]\nmode = decide\n", "prdo", "no profile 'prdo'; it has prod. Did you mean prod?"),
        (None, "prod", "Profile 'prod' needs a settings.ini"),
        ("retention_days = 1\n", None, "settings.ini is not a settings file"),
        ("[DEFAULT]\nmode = a\nmode = b\n", None, "settings.ini is not a settings file"),
        (
            "[DEFAULT]\nretention_days = 4 # x\n",
            None,
            "'4 # x' (from settings.ini [DEFAULT]): wanted a whole",
        ),
        ("[prod]\nordr_by = a\n", "prod", "'ordr_by' (from settings.ini [prod]). Did you mean order_by?"),
    ],
)
def test_a_settings_file_that_does_not_fit(text, profile, words):
    if text:
        ini(text)
    assert words in mistakes(profile)


def test_a_folder_is_no_settings_file(tmp_path):
    assert f"{tmp_path} cannot be read: " in mistakes(settings_file=str(tmp_path))


@pytest.mark.parametrize(
    "given, found", [(" ", " "), ("\t", "\t"), (" ; ", ";"), ("\n", ","), ("", ","), ("tab", "tab")]
)
def test_between_the_cells_of_csv_a_blank_or_a_tab_may_stand(given, found, monkeypatch):
    assert Config.passed(csv_delimiter=given).csv_delimiter == found
    assert Config.passed(csv_delimiter=given).replace(mode="decide").csv_delimiter == found
    monkeypatch.setenv("DEDUP_CSV_DELIMITER", given)
    ini("[DEFAULT]\ncsv_delimiter = |\n")
    assert Config.load().csv_delimiter == (found if found != "," else "|")
    assert Config(input=" \t\n").input is None


def test_a_named_settings_file_must_be_there_and_signs_in_values_are_values():
    assert "nowhere.ini is not there" in mistakes(settings_file="nowhere.ini")
    ini("[DEFAULT]\ninput_format = json\ninput_where = a like '%x' and b = '#1'\n")
    assert Config.load().input_where == "a like '%x' and b = '#1'"


# --- what is wrong with them


def test_all_mistakes_are_reported_together(monkeypatch):
    monkeypatch.setenv("DEDUP_ORDERBY", "x")
    said = mistakes(ordr_by="x", synthetic="rename_al", retention_days=0, max_bad_share="nan", rerun="maybe")
    for words in (
        "Unknown setting 'ordr_by'. Did you mean order_by?",
        "Unknown setting 'orderby' (from DEDUP_ORDERBY). Did you mean order_by?",
        "synthetic = 'rename_al': wanted one of rename_later, ",
        "Did you mean rename_all?",
        "retention_days = '0': wanted at least 1.",
        "max_bad_share = 'nan': wanted a finite number.",
        "rerun = 'maybe': wanted true or false.",
    ):
        assert words in said
    assert said.count("\n- ") == 6


@pytest.mark.parametrize(
    "name, least, most",
    [
        ("retention_days", 1, 36500),
        ("max_batches", 1, None),
        ("max_wcu", 1, None),
        ("max_bad_share", 0, 1),
        ("max_duplicate_share", 0, 1),
        ("wait_minutes", 0, None),
        ("claim_timeout_minutes", 0, None),
    ],
)
def test_numbers_have_limits(name, least, most):
    Config(**{name: least})
    assert f"wanted at least {least}" in mistakes(**{name: least - 1})
    if most:
        Config(**{name: most})
        assert f"wanted at most {most}" in mistakes(**{name: most + 1})


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"natural": "off"}, "set synthetic=off too"),
        ({"natural": "off", "synthetic": "off"}, "or set manifest=none"),
        ({"event_id": "event_fingerprint", "input_format": "json"}, "the same column: name two"),
        ({"input_schema": "a int", "input_format": "delta"}, "input_schema is for input_format=json"),
        ({"input_where": "a = 1", "input_format": "enriched_tsv"}, "input_where needs named columns"),
        ({"event_id": "uuid", "input_format": "enriched_tsv"}, "enriched_tsv has fixed columns"),
        ({"missing_fingerprint": "unique", "fingerprint_columns": "a"}, "remove one of the two"),
        ({"missing_fingerprint": "id", "fingerprint_columns": "a"}, "remove one of the two"),
        ({"order_by": "event_id"}, "leave it out of order_by"),
        ({"order_by": "event_fingerprint desc"}, "leave it out of order_by"),
        ({"output_format": "delta", "partition_by": "a"}, "partition_by needs output_format parquet or json"),
        ({"minimum_timestamp": "yesterday"}, "minimum_timestamp is not a time: 'yesterday'; write"),
        ({"minimum_timestamp": "2026-01-01", "input_format": "json"}, "use input_where for other formats"),
        ({"etl_time": "2026-13-45"}, "etl_time is not a time that a calendar has: '2026-13-45'; write"),
        ({"etl_time": "tomorrow"}, "etl_time is not a time that a calendar has"),
        ({"etl_time": "+10000-01-01"}, "etl_time is not a time that a calendar has"),
        ({"batch_id": "../x"}, "batch_id cannot be part of a folder name"),
        ({"batch_id": "erasures"}, "the folder of this name is kept for the proofs of erasures"),
        ({"batch_id": "x" * 181}, "at most 180 of them"),
    ],
)
def test_contradictions_are_errors_that_say_what_to_change(parameters, words):
    assert words in mistakes(**parameters)


def test_lists_booleans_and_papermills_guesses_are_understood():
    config = Config.load(order_by="a, b desc,", rerun="No", create_table=True, batch_id=20261120)
    assert (config.order_by, config.rerun, config.create_table) == (("a", "b desc"), False, True)
    assert (config.batch_id, Config(skip_batches=20261120).skip_batches) == ("20261120", ("20261120",))
    assert Config(order_by=["a", "b"]) == Config(order_by="a,b")
    assert Config(batch_id="2026-11-20~1").batch_id == "2026-11-20~1"


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_value_is_not_given(blank):
    names = "retention_days synthetic missing_fingerprint event_fingerprint event_id order_by".split()
    ini("[DEFAULT]\n" + "".join(f"{name} ={blank}\n" for name in names))
    expected, blanks = Config(compat="snowplow"), dict.fromkeys(names, blank)
    given = Config(compat="snowplow", synthetic="off", retention_days=7)
    for config in (
        Config.load(compat="snowplow"),
        Config(compat="snowplow", **blanks),
        expected.replace(**blanks),
        given.replace(**blanks),
    ):
        assert config == expected and config.sources == expected.sources
    assert Config(event_id=",", order_by=[]).sources == {}


# --- presets


@pytest.mark.parametrize(
    "given, changed, expected",
    [
        ({}, {}, ("rename_all", "unique")),
        ({"synthetic": "rename_later"}, {}, ("rename_later", "unique")),
        ({}, {"retention_days": 7}, ("rename_all", "unique")),
        ({}, {"synthetic": "quarantine"}, ("quarantine", "unique")),
        ({}, {"synthetic": "rename_later"}, ("rename_later", "unique")),
        ({}, {"compat": "none"}, ("rename_later", None)),
        ({"synthetic": "off"}, {"compat": "none"}, ("off", None)),
    ],
)
def test_a_preset_holds_below_what_is_given_and_replace_keeps_it(given, changed, expected):
    config = Config.load(compat="snowplow", **given).replace(**changed)
    assert (config.synthetic, config.missing_fingerprint) == expected
    again = config.replace()
    assert again == config and again.sources == config.sources


def test_a_config_is_frozen_and_a_replaced_one_is_checked():
    with pytest.raises(AttributeError):
        Config().mode = "decide"
    with pytest.raises(ConfigError, match="wanted at least 1"):
        Config().replace(retention_days=0)


# --- one table


def test_the_page_of_settings_and_the_help_are_made_of_the_table():
    table = [line for line in settings_table().splitlines() if line]
    assert len(table) == 3 * len(GROUPS) + len(settings())
    assert table[0] == "## Input" and table[3].startswith("| input | - | events: a folder,")
    assert "| event_id | event_id | column of the event id, or several" in settings_table()
    assert {s.metadata["group"] for s in settings()} == set(GROUPS)
    assert settings_table() in (ROOT / "docs/settings.md").read_text()


def test_every_public_setting_is_there():
    names = "input output input_format input_schema csv_delimiter input_where output_format output_table "
    names += "table_may_grow partition_by shred_layout skip_schemas wide_row_schema truncate_atomic carry "
    names += "batch_pattern batch_id etl_time since until "
    names += "max_batches skip_batches mode event_id null_in_id event_fingerprint "
    names += "order_by missing_fingerprint fingerprint_columns natural synthetic compat manifest "
    names += "manifest_path retention_days rerun wait_minutes claim_timeout_minutes owner dynamodb_table "
    names += "dynamodb_endpoint aws_region create_table max_wcu duplicate_storage_config "
    names += "minimum_timestamp max_duplicate_share max_bad_share"
    assert [s.name for s in settings()] == names.split()


def test_settings_are_resolved_into_the_recipe_the_places_and_the_limits():
    of_rows, of_runs = ({f.name for f in fields(kind)} - {"given", "etl_s"} for kind in (Recipe, Limits))
    text = {n: f"{n}1" for n in ("input", "output", "manifest_path", "dynamodb_table", "dynamodb_endpoint")}
    more = dict(order_by="a", retention_days=9, batch_id="b1", etl_time="1970-01-02", max_batches=3)
    config = Config(**text, **more, mode="decide", aws_region="r1", max_wcu=5)
    recipe, places, limits = recipe_of(config), places_of(config), limits_of(config)
    assert {n: getattr(recipe, n) for n in of_rows} == {n: getattr(config, n) for n in of_rows}
    assert {n: getattr(limits, n) for n in of_runs} == {n: getattr(config, n) for n in of_runs}
    assert recipe.given == {"order_by", "retention_days"} and limits.etl_s == 86400
    assert (places.input.path, places.output.path, places.output.applies) == ("input1", "output1", False)
    m = places.memory
    assert (m.path, m.table, m.endpoint) == ("manifest_path1", "dynamodb_table1", "dynamodb_endpoint1")
    assert (m.region, m.max_wcu, m.kind) == ("r1", 5, "lake")


# --- notebooks


def test_a_notebooks_plain_values_are_parameters_and_others_are_not():
    found = {"input": "x", "_private": 1, "run": print, "output": None, "In": ["x"], "limt": 3}
    assert parameters_in(found) == {"input": "x", "limt": 3}


@pytest.mark.parametrize("name, value", [("since", 2026112009), ("until", 2026.1), ("since", 10_000)])
def test_names_of_batches_that_papermill_made_numbers_are_refused(name, value):
    for right in ({name: str(value), "max_batches": 20_000}, {name: 2026}, {name: True}):
        assert parameters_in(right) == right
    with pytest.raises(
        ConfigError, match=f"{name} is the number {value}: pass the name as text, as -r {name} "
    ):
        parameters_in({name: value})


def test_keys_typed_into_a_notebook_are_refused_without_showing_them():
    Path("manifest.json").write_text("{}")
    named = {"duplicate_storage_config": "manifest.json", "input": "x"}
    assert parameters_in(named) == named
    with pytest.raises(ConfigError, match="DEDUP_DUPLICATE_STORAGE_CONFIG") as wrong:
        parameters_in({"duplicate_storage_config": "eyJzZWNyZXQiOiAxfQ=="})
    assert "eyJz" not in str(wrong.value)


def test_a_setting_that_dataclasses_replaced_stays_when_another_is():
    changed = replace(Config(compat="snowplow"), retention_days=7).replace(wait_minutes=3)
    assert (changed.retention_days, changed.wait_minutes, changed.compat) == (7, 3, "snowplow")
