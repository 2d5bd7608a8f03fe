"""Groups F and M: the broker, or everybody, stands still and goes on."""

import time
from contextlib import closing
from pathlib import Path

import oncelog
from oncelog.testing import pause
from oncelog.wire.errors import ErrorCode
from tests.crash.brokers import SocketLine
from tests.scenarios.wire import OK
from tests.testing.plain import until
from tests.txn.producer import Producer
from tests.txn.reader import ends, read
from tests.txn.world import create_topic

TOPIC = "t"
COUNT = 12
TIMEOUT_MS = 1000
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "1",
}
#: How a commit is refused that came too late.
TOO_LATE = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
}


def test_f91_m184_when_everything_resumes_each_transaction_is_decided_once(tmp_path: Path) -> None:
    """K4, K5, at a fiftieth of its size: half of the transactions expired while nothing ran."""
    with oncelog.Broker(SETTINGS, data_dir=tmp_path, process=True) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with closing(SocketLine(port)) as line:
            create_topic(line, TOPIC)
            lines = [SocketLine(port) for _ in range(COUNT)]
            producers = [
                Producer(
                    lines[number],
                    f"x{number}",
                    topic=TOPIC,
                    is_v2=number % 4 > 1,
                    timeout_ms=TIMEOUT_MS if number % 2 else 60_000,
                ).ready()
                for number in range(COUNT)
            ]
            for number, producer in enumerate(producers):
                producer.begin({0: [b"%d" % number]})

            with broker.fault(pause()):
                time.sleep(2.5 * TIMEOUT_MS / 1000)  # the pause is what the test is about

            answers = [producer.end(True).error_code for producer in producers]

            patient = [code for number, code in enumerate(answers) if number % 2 == 0]
            assert set(patient) == {OK}
            assert set(answers) <= {OK, *TOO_LATE}
            until(lambda: len(set(ends(line, topic=TOPIC))) == 1)
            expected = sorted(b"%d" % number for number, code in enumerate(answers) if code == OK)
            assert sorted(read(line, topic=TOPIC)) == expected
            for each in lines:
                each.close()
