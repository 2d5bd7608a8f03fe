"""Spark looks for data sources in packages whose names begin like this one."""
