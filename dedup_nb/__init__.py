"""Find and remove duplicate events with Spark, and account for every row."""

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


def __getattr__(name: str):
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
