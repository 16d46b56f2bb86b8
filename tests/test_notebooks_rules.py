"""The notebooks of the base, the formats, the rules and the manifest run."""

import pytest
from runs import notebooks, runs_through

PATHS = notebooks("base/*", "formats/*", "report/*", "02_rules/*", "03_manifest/*", "04_dynamodb/*")


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    assert runs_through(path), capfd.readouterr().err[-4000:]
