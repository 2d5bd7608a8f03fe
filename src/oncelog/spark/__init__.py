"""Exactly-once pipelines on Apache Spark.

`Pipeline` reads, processes and writes without a checkpoint; `Sink` makes the output of any streaming
query exactly once; `write` does it for a batch; `audit` compares what went in with what came out. The
source, `spark.readStream.format("oncelog")`, is found by Spark itself.
"""

from oncelog.core.delivery import Delivery
from oncelog.spark.audit import Topics, audit
from oncelog.spark.audit_report import AuditReport
from oncelog.spark.errors import (
    BadConfiguration,
    DriverReplaced,
    GivenUp,
    PipelineError,
    Refused,
    Stopped,
)
from oncelog.spark.exactly_once import Done
from oncelog.spark.metrics import BatchMetrics, SinkMetrics
from oncelog.spark.pipeline import Pipeline, Source, Summary
from oncelog.spark.sink import Sink
from oncelog.spark.steps import Event, Step
from oncelog.spark.write import write

__all__ = [
    "AuditReport",
    "BadConfiguration",
    "BatchMetrics",
    "Delivery",
    "Done",
    "DriverReplaced",
    "Event",
    "GivenUp",
    "Pipeline",
    "PipelineError",
    "Refused",
    "Sink",
    "SinkMetrics",
    "Source",
    "Step",
    "Stopped",
    "Summary",
    "Topics",
    "audit",
    "write",
]
