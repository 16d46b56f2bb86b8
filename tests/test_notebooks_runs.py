"""The notebooks of the runs, the profile, the price and the tools run, and the tutorial."""

import pytest
from runs import notebooks, runs_through


@pytest.mark.parametrize("path", [*notebooks("[3-9]*"), *notebooks("tutorial")], ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    assert runs_through(path), capfd.readouterr().err[-4000:]
