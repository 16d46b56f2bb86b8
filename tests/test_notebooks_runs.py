"""The notebooks of the runs, the profile, the price and the tools run."""

import pytest
from conftest import ROOT
from nbdev.test import test_nb as run_notebook

NOTEBOOKS = sorted((ROOT / "nbs").glob("[3-9]*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_notebook_runs(spark, path, capfd):
    passed, _ = run_notebook(path, basepath=ROOT)
    assert passed, capfd.readouterr().err[-4000:]
