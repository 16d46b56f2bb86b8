"""Find and remove duplicate events with Spark, and account for every row."""
__version__ = "0.1.0"

from .config import Config
from .pipeline import deduplicate, run

__all__ = ["Config", "deduplicate", "run"]
