"""Find and remove duplicate events with Spark, and account for every row."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for editors and type checkers
    from .base.config import Config
    from .base.spark import get_spark
    from .distribution.compare import compare
    from .distribution.profile import profile, profile_events
    from .formats.shred import shred, wide_row
    from .merges.change_log import (
        Coalescing,
        Collapsing,
        Latest,
        Replacing,
        VersionedCollapsing,
        check_log,
        explain_merge,
    )
    from .merges.engines import (
        coalescing,
        collapsing,
        final,
        latest,
        merge,
        replacing,
        versioned_collapsing,
    )
    from .merges.merge_table import MergeTable
    from .pipeline.run import run
    from .rules.deduplicate import deduplicate
    from .streams.deduper import Deduper
    from .streams.deduper_state import DedupState
    from .streams.stream import deduplicate_stream
    from .warehouse.repair import repair
    from .warehouse.sql import split_events, warehouse_sql

__version__ = "0.2.0"

_HOMES = {
    "base.config": "Config",
    "base.spark": "get_spark",
    "distribution.compare": "compare",
    "distribution.profile": "profile profile_events",
    "formats.shred": "shred wide_row",
    "merges.change_log": "Coalescing Collapsing Latest Replacing VersionedCollapsing check_log explain_merge",
    "merges.engines": "coalescing collapsing final latest merge replacing versioned_collapsing",
    "merges.merge_table": "MergeTable",
    "pipeline.run": "run",
    "rules.deduplicate": "deduplicate",
    "streams.deduper": "Deduper",
    "streams.deduper_state": "DedupState",
    "streams.stream": "deduplicate_stream",
    "warehouse.repair": "repair",
    "warehouse.sql": "split_events warehouse_sql",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    "Import a public name where it is asked for first: `deduplicate` needs no more than Spark."
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError:
        from .base.spark import check_spark

        check_spark()  # says how to install it
        raise
