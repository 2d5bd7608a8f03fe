"""InitProducerId (22): what is offered, and what is not."""

import pytest

from oncelog.client.errors import ClientError
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.api.in_process import InProcessBroker

KEY = 22


def test_two_phase_commit_is_not_offered(broker: InProcessBroker) -> None:
    """Check 40: version 6, which has Enable2Pc and KeepPreparedTxn, is refused as Kafka refuses it."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    offered = {api.api_key: api.max_version for api in broker.ask(request, 4).api_keys}

    assert offered[KEY] == 5
    with pytest.raises(ClientError):
        broker.ask(InitProducerIdRequest(transactional_id="id", keep_prepared_txn=True), 6)


@pytest.mark.parametrize("version", range(6))
def test_every_call_without_a_transactional_id_brings_a_new_producer(
    broker: InProcessBroker, version: int
) -> None:
    """Check 26."""
    replies = [broker.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(5)]

    assert {reply.error_code for reply in replies} == {0}
    assert {reply.producer_epoch for reply in replies} == {0}
    assert len({reply.producer_id for reply in replies}) == 5
