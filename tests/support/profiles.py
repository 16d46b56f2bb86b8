"What tests of profiles share."

from dedup_nb.distribution.copies import Compared

COUNTS = ("events", "ids", "repeated_ids", "natural_excess", "synthetic_excess", "hottest_id_events", "bad")


def headline(found):
    return {name: found.numbers[name] for name in COUNTS}


COMPARED = Compared(("collector_tstamp", "page"), ("page",))
