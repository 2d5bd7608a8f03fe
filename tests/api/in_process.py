"""A broker on a loop that runs while a test asks it something: real sockets, no threads.

broker.ask(DescribeClusterRequest(), 2).cluster_id
"""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oncelog.client.connection import Connection
from oncelog.core.records import KeyValue, encode_batch
from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import Broker
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SETTINGS: Final[Mapping[str, str]] = {"group.initial.rebalance.delay.ms": "0"}


def a_batch(values: Sequence[bytes]) -> bytes:
    """A batch of records as a producer without an id sends it."""
    pairs = [KeyValue(b"k", value) for value in values]
    return bytes(encode_batch(pairs, timestamp_ms=time.time_ns() // 1_000_000))


class InProcessBroker:
    """One broker and one connection to it."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._settings = {**SETTINGS, **(settings or {})}
        self._runner = asyncio.Runner()
        self._broker: Broker | None = None
        self._connection: Connection | None = None

    # --- its life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and connect."""
        config = BrokerConfig().with_values(self._settings, origin="test").checked()
        self._broker = Broker(config, self.data_dir, ("127.0.0.1", 0))
        self._runner.run(self._start(self._broker))

    async def _start(self, broker: Broker) -> None:
        await broker.start()
        self._connection = await Connection.open("127.0.0.1", broker.port)

    def stop(self) -> None:
        """Stop in order."""
        if self._broker is not None:
            self._runner.run(self._stop(self._broker))
            self._broker = None

    async def _stop(self, broker: Broker) -> None:
        if self._connection is not None:
            await self._connection.close()
        await broker.stop()

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop in order and start again, perhaps with other settings."""
        self.stop()
        if settings is not None:
            self._settings = {**SETTINGS, **settings}
        self.start()

    def crash(self) -> None:
        """Start again from what is in the files now, as if the process had been killed."""
        copy = self.data_dir.with_name(self.data_dir.name + "-crashed")
        shutil.copytree(self.data_dir, copy)
        self.stop()
        self.data_dir = copy
        self.start()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._runner.close()

    # --- asking it ----------------------------------------------------------------------------------

    def ask(self, message: Any, version: int | None = None) -> Any:
        """Send a request and return the response."""
        assert self._connection is not None, "the broker was started"
        return self._runner.run(self._connection.request(message, version=version))

    def ask_all(self, messages: Sequence[Any], version: int | None = None) -> list[Any]:
        """Send requests over connections of their own, all at the same time."""
        return self._runner.run(self._ask_all(messages, version))

    async def _ask_all(self, messages: Sequence[Any], version: int | None) -> list[Any]:
        connections = [
            await Connection.open("127.0.0.1", self.port, negotiates=True) for _ in messages
        ]
        try:
            return await asyncio.gather(
                *(
                    connection.request(message, version=version)
                    for connection, message in zip(connections, messages, strict=True)
                )
            )
        finally:
            for connection in connections:
                await connection.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._broker is not None, "the broker was started"
        return self._broker.port

    # --- what many tests need -----------------------------------------------------------------------

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        (result,) = self.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == 0, result

    def describe(self, name: str) -> MetadataResponseTopic:
        """What Metadata says of a topic, without creating it."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        topic: MetadataResponseTopic = self.ask(request).topics[0]
        return topic

    def configs(self, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
        """The settings of a topic (2) or a broker (4), by name."""
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = self.ask(request).results
        assert result.error_code == 0, result
        return {config.name: config for config in result.configs}

    def produce(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """Append one batch; returns its base offset."""
        data = PartitionProduceData(index=partition, records=a_batch(values))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        response = self.ask(request, 12).responses[0].partition_responses[0]
        assert response.error_code == 0, response
        return int(response.base_offset)
