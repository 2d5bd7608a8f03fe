"""DescribeCluster over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.metadata import MetadataRequest
from tests.api.in_process import InProcessBroker

VERSIONS = DescribeClusterRequest.VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cluster_is_this_broker(broker: InProcessBroker, version: int) -> None:
    cluster = broker.ask(DescribeClusterRequest(), version)

    metadata = broker.ask(MetadataRequest(topics=[]))
    assert cluster.cluster_id == metadata.cluster_id
    assert cluster.controller_id == metadata.controller_id == 1
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [
        (1, "127.0.0.1", broker.port)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_allowed_operations_are_those_of_an_unsecured_kafka(
    broker: InProcessBroker, version: int
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)

    # Create, alter, describe, cluster action, describe and alter configs, idempotent write.
    assert broker.ask(request, version).cluster_authorized_operations == 8096
    assert broker.ask(DescribeClusterRequest(), version).cluster_authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_broker_is_no_controller(
    broker: InProcessBroker, version: int, endpoint_type: int, code: int
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)

    assert broker.ask(request, version).error_code == code
