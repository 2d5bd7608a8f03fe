"""Spark looks for data sources in packages whose names begin like this one, and finds ours."""

from oncelog.spark.source import OncelogSource as DefaultSource

__all__ = ["DefaultSource"]
