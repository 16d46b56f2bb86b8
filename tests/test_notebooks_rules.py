"""The notebooks of the base, the formats, the rules and the manifest run."""

import pytest
from runs import notebooks, runs_through

FIRST = notebooks("base/*", "report/*", "02_rules/[12]*", "05_costs/*")
LONGER = notebooks("02_rules/[345]*", "formats/*", "03_manifest/*", "04_dynamodb/*")
PATHS = [*FIRST, *(pytest.param(path, marks=pytest.mark.slow) for path in LONGER)]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    assert runs_through(path), capfd.readouterr().err[-4000:]
