"""Settings: where they come from, what is wrong with them, and that everything is made from the one table."""
import ast
from pathlib import Path
import pytest
from conftest import ROOT
from dedup_nb.config import Config, ConfigError, did_you_mean, parameters_in, settings, settings_table


def mistakes(**parameters):
    with pytest.raises(ConfigError) as wrong: Config.load(**parameters)
    return str(wrong.value)


def test_without_a_settings_file_the_defaults_hold():
    config = Config.load()
    assert (config.input_format, config.synthetic, config.retention_days, config.order_by) == ("enriched_tsv", "rename_later", 180, ())
    assert config.source("synthetic") == "default"


def test_each_layer_beats_the_one_below(monkeypatch):
    Path("settings.ini").write_text("[DEFAULT]\nretention_days = 1\nbatch_pattern = a=*\nsynthetic = off\nmode = decide\n[prod]\nbatch_pattern = b=*\nsynthetic = quarantine\nmode = decide\n")
    monkeypatch.setenv("DEDUP_SYNTHETIC", "rename_all"); monkeypatch.setenv("DEDUP_MODE", "decide")
    config = Config.load("prod", mode="apply")
    assert (config.retention_days, config.batch_pattern, config.synthetic, config.mode) == (1, "b=*", "rename_all", "apply")
    assert [config.source(n) for n in ("retention_days", "batch_pattern", "synthetic", "mode")] == ["settings.ini [DEFAULT]", "settings.ini [prod]", "DEDUP_SYNTHETIC", "parameter"]


def test_the_profile_may_come_from_the_environment(monkeypatch):
    Path("settings.ini").write_text("[night]\nretention_days = 7\n")
    monkeypatch.setenv("DEDUP_PROFILE", "night")
    assert Config.load().retention_days == 7


def test_a_profile_that_is_not_there_names_the_nearest():
    Path("settings.ini").write_text("[prod]\nmode = decide\n")
    with pytest.raises(ConfigError, match="no profile 'prdo'; it has prod. Did you mean prod?"): Config.load("prdo")


def test_a_profile_without_a_settings_file_is_an_error():
    with pytest.raises(ConfigError, match="there is none"): Config.load("prod")


def test_a_named_settings_file_must_be_there():
    with pytest.raises(ConfigError, match="nowhere.ini is not there"): Config.load(settings_file="nowhere.ini")


def test_a_broken_settings_file_is_named():
    Path("settings.ini").write_text("retention_days = 1\n")
    with pytest.raises(ConfigError, match="settings.ini is not a settings file"): Config.load()


def test_percent_signs_and_hashes_are_values():
    Path("settings.ini").write_text("[DEFAULT]\ninput_format = json\ninput_where = a like '%x' and b = '#1'\n")
    assert Config.load().input_where == "a like '%x' and b = '#1'"


def test_a_comment_behind_a_number_is_refused_not_swallowed():
    Path("settings.ini").write_text("[DEFAULT]\nretention_days = 4 # note\n")
    assert "retention_days = '4 # note' (from settings.ini [DEFAULT]): wanted a whole number" in mistakes()


def test_all_mistakes_are_reported_together():
    said = mistakes(ordr_by="x", synthetic="rename", retention_days=0, max_bad_share="nan", rerun="perhaps", max_dollars=-1)
    for part in ("'ordr_by'. Did you mean order_by?", "synthetic = 'rename'", "wanted at least 1", "a finite number", "true or false", "wanted at least 0"): assert part in said
    assert said.count("\n- ") == 6


def test_an_unknown_environment_variable_is_named(monkeypatch):
    monkeypatch.setenv("DEDUP_ORDERBY", "x")
    assert "Unknown setting 'orderby' (from DEDUP_ORDERBY). Did you mean order_by?" in mistakes()


def test_variables_of_the_test_suite_are_no_settings(monkeypatch):
    monkeypatch.setenv("DEDUP_TEST_DYNAMODB_ENDPOINT", "http://127.0.0.1:1")
    Config.load()


@pytest.mark.parametrize("parameters, words", [
    ({"natural": "off"}, "set synthetic=off too"),
    ({"event_id": "", "input_format": "parquet"}, "event_id names no column"),
    ({"input_schema": "a int"}, "input_schema is for input_format=json only"),
    ({"input_where": "a = 1"}, "input_where needs named columns"),
    ({"event_id": "uuid"}, "enriched_tsv has fixed columns"),
    ({"missing_fingerprint": "unique", "fingerprint_columns": "a"}, "remove one of the two"),
    ({"order_by": "event_id"}, "leave it out of order_by"),
    ({"output_format": "delta", "partition_by": "platform"}, "partition_by needs output_format parquet or json"),
    ({"input": "events", "output": "events/"}, "the same folder"),
    ({"minimum_timestamp": "yesterday"}, "not a time"),
])
def test_contradictions_are_errors_that_say_what_to_change(parameters, words):
    assert words in mistakes(**parameters)


def test_compat_changes_only_what_nobody_set():
    assert (Config.load(compat="snowplow").synthetic, Config.load(compat="snowplow").missing_fingerprint) == ("rename_all", "unique")
    assert Config.load(compat="snowplow", synthetic="rename_later").synthetic == "rename_later"


def test_lists_booleans_and_papermills_guesses_are_understood():
    config = Config.load(order_by="a, b", rerun="false", create_table=True, batch_id=20261120, input_format="parquet")
    assert (config.order_by, config.rerun, config.create_table, config.batch_id) == (("a", "b"), False, True, "20261120")
    assert Config.load(order_by=["a", "b"], input_format="parquet").order_by == ("a", "b")


def test_config_is_frozen():
    with pytest.raises(AttributeError): Config().mode = "decide"


def test_given_looks_at_no_file_and_no_environment(monkeypatch):
    Path("settings.ini").write_text("[DEFAULT]\nretention_days = 1\n"); monkeypatch.setenv("DEDUP_MODE", "decide")
    assert (Config.given().retention_days, Config.given().mode) == (180, "apply")
    with pytest.raises(ConfigError, match="Did you mean mode?"): Config.given(modes="decide")


def test_a_secret_is_never_among_the_chosen_settings():
    config = Config(duplicate_storage_config="eyJzZWNyZXQiOiJ4In0=", mode="decide")
    assert config.chosen() == {"mode": "decide"} and "eyJ" not in str(config.chosen())


def test_the_nearest_name():
    assert did_you_mean("etl_tsamp", ["etl_tstamp", "event_id"]) == " Did you mean etl_tstamp?" and did_you_mean("q", ["event_id"]) == ""


def test_the_readme_shows_the_table():
    assert settings_table() in (ROOT / "README.md").read_text()


def test_a_notebooks_plain_values_are_parameters_and_others_are_not():
    assert parameters_in({"input": "x", "_private": 1, "run": print, "output": None, "In": ["x"], "limt": 3}) == {"input": "x", "limt": 3}


def test_every_public_setting_of_the_contract_is_there():
    names = "input output input_format input_schema input_where output_format partition_by batch_pattern batch_id etl_time since until max_batches skip_batches mode event_id event_fingerprint order_by missing_fingerprint fingerprint_columns natural synthetic compat manifest manifest_path retention_days rerun wait_minutes claim_timeout_minutes dynamodb_table dynamodb_endpoint aws_region create_table dynamodb_capacity dynamodb_layout dynamodb_strategy max_wcu duplicate_storage_config minimum_timestamp max_duplicate_share max_bad_share max_dollars prices".split()
    assert [s.name for s in settings()] == names


ALLOWED = {  # who may import whom: config and read at the bottom, stages know only Spark and config (and the keys), cli on top
    "config": set(), "read": {"config"}, "suspects": {"config"}, "natural": {"config"}, "manifest": {"config", "read"}, "dynamodb": {"config", "costs", "manifest", "read", "report"}, "cross_batch": {"manifest", "synthetic"}, "synthetic": {"config", "suspects"},
    "report": {"config"}, "costs": {"config", "read", "report"}, "plan": {"config", "read", "report", "suspects", "costs"}, "write": {"config", "read", "suspects"}, "samples": {"config", "read"},
    "pipeline": {"config", "costs", "dynamodb", "read", "suspects", "natural", "synthetic", "manifest", "cross_batch", "write", "report"},
    "history": {"config", "costs", "dynamodb", "read", "manifest", "pipeline", "suspects", "write", "report"},
    "distribution": {"config", "costs", "dynamodb", "pipeline", "read", "report", "suspects", "write"},
    "cli": {"config", "costs", "dynamodb", "distribution", "history", "pipeline", "plan", "report"}, "__init__": {"config", "pipeline"},
}


def test_imports_point_one_way():
    for path in sorted((ROOT / "dedup_nb").glob("*.py")):
        if path.stem.startswith("_mod"): continue
        tree = ast.parse(path.read_text())
        used = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 1 and n.module}
        assert used <= ALLOWED[path.stem], f"{path.stem} imports {used - ALLOWED[path.stem]}"


def test_what_is_passed_beats_the_preset_even_if_it_is_the_default():
    assert Config(compat="snowplow", synthetic="rename_later").synthetic == "rename_later" and Config(compat="snowplow").synthetic == "rename_all"


def test_an_output_in_the_input_is_refused_however_it_is_spelled(tmp_path):
    for output in ("data", "data/out", f"{tmp_path}/data", f"file://{tmp_path}/data/out"):
        with pytest.raises(ConfigError, match="lies in it"): Config(input="data", output=output)
    Config(input="data", output="data_out")


def test_a_setting_that_may_hold_keys_is_not_printed():
    assert "c2VjcmV0" not in repr(Config(duplicate_storage_config="c2VjcmV0"))


def test_keys_typed_into_a_notebook_are_refused_without_showing_them(tmp_path):
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    assert parameters_in({"duplicate_storage_config": str(file), "input": "x"}) == {"duplicate_storage_config": str(file), "input": "x"}
    with pytest.raises(ConfigError, match="must be the path of a file.*DEDUP_DUPLICATE_STORAGE_CONFIG") as wrong: parameters_in({"duplicate_storage_config": "eyJzZWNyZXQiOiAxfQ=="})
    assert "eyJz" not in str(wrong.value)


def test_values_that_look_right_but_are_none_are_named():
    assert Config(skip_batches=20261120).skip_batches == ("20261120",)  # as papermill gives it
    with pytest.raises(ConfigError, match="no calendar has"): Config(etl_time="2026-13-45")
