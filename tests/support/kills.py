"""Where a stream is killed: in which of its four micro-batches, at which step."""

from itertools import product

import pytest


def kills_at(points):
    "Give a test its `kills`, pairs of micro-batch and step: in each one step, and, by hand, all of them."
    first, *others, last = points
    some = [(0, first), (1, others[len(others) // 2]), (3, last)]
    every = list(product((0, 1, 3), points))
    of_test = (pytest.param(some, marks=pytest.mark.slow), pytest.param(every, marks=pytest.mark.soak))
    return pytest.mark.parametrize("kills", of_test, ids=("some", "all"))
