"Wide rows: no value is lost between batches, and what no type holds is text."

import pytest
from entities import WIDE, entity, envelope, frame_of_lines, line_of

from dedup_nb.formats.enriched import decoded, with_line_ids
from dedup_nb.formats.wide_rows import columns_as_json, columns_from_json, fitted_types


@pytest.mark.slow
@pytest.mark.parametrize(
    "was, now",
    [
        pytest.param({"at": {"x": 1}}, {"at": "home"}, marks=pytest.mark.slow),
        pytest.param({"at": 1}, {"at": [1]}, marks=pytest.mark.slow),
        ({"n": 5}, {"n": 5.5}),
        ({"n": [{"x": 5.5}]}, {"n": [{"x": 2**53 + 1}]}),
        pytest.param({"n": 5}, {"n": 2**70}, marks=pytest.mark.slow),
        pytest.param({"id": 1}, {"id": 1, "Id": 2}, marks=pytest.mark.slow),
        ({"first name": 1, "a.b": 2, "it's": 3, "3d": 4}, {"first name": "x"}),
    ],
)
def test_no_value_is_lost_between_batches(spark, was, now):
    def events(data):
        contexts = envelope("contexts", [entity("web_page", data)])
        return decoded(with_line_ids(frame_of_lines(spark, line_of(contexts=contexts)), "value"), None)

    before, texts = fitted_types(events(was), {}, grows=True)
    assert texts == [] and columns_from_json(columns_as_json(before)) == before
    after, texts = fitted_types(events(now), before, grows=True)
    assert texts == [WIDE] and after[WIDE].simpleString() == "string"
    assert fitted_types(events(was), before, grows=True) == (before, [])


@pytest.mark.slow
def test_a_whole_number_that_a_double_holds_stays_one(spark):
    def events(number):
        contexts = envelope("contexts", [entity("web_page", {"n": number})])
        return decoded(with_line_ids(frame_of_lines(spark, line_of(contexts=contexts)), "value"), None)

    before, _ = fitted_types(events(5.5), {}, grows=True)
    for number in (2**53 + 2, 2**60, -(2**62), -5, 1e300, 0.1):
        assert fitted_types(events(number), before, grows=True) == (before, [])


@pytest.mark.slow
@pytest.mark.parametrize("data", [5, "text", {}, [1], {"a": 1, "A": 2}, {"n": 2**70}])
def test_what_no_type_holds_is_text(spark, data):
    contexts = envelope("contexts", [entity("web_page", data)])
    events = decoded(with_line_ids(frame_of_lines(spark, line_of(contexts=contexts)), "value"), None)
    columns, texts = fitted_types(events, {}, grows=True)
    assert columns[WIDE].simpleString() == "string" and texts == [WIDE]
