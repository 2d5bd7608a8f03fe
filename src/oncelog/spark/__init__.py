"""Exactly-once pipelines on Apache Spark: a source, a sink, and the two together."""
