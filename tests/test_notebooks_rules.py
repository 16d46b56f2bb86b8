"""The notebooks of the base, the rules and the memory run."""

import pytest
from runs import notebooks, runs_through


@pytest.mark.parametrize("path", notebooks("[012]*"), ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    assert runs_through(path), capfd.readouterr().err[-4000:]
