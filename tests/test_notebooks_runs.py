"""The other chapters run: the tutorial, the distribution, runs, what is built on them, the command."""

import pytest
from runs import notebooks, runs_through

PATHS = notebooks("*", "01_*/*", "0[6-9]_*/*", "10_*/*", "tools/*")


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    assert runs_through(path), capfd.readouterr().err[-4000:]
