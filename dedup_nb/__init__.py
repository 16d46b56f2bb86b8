"""Find and remove duplicate events with Spark, and account for every row."""

__version__ = "0.2.0"
__all__ = ["Config", "deduplicate", "get_spark", "run"]

_HOMES = {"Config": "config", "deduplicate": "resolve", "get_spark": "session", "run": "pipeline"}


def __getattr__(name: str):
    "Import a public name where it is asked for first: `deduplicate` needs no more than Spark."
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError:
        from .session import check_spark

        check_spark()  # says how to install it
        raise
