"""What lies in our directories is what lies in Kafka's: its own dump tool reads every file."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.peers.java import KAFKA, Output, run
from tests.peers.oncelog import Oncelog, running_oncelog

pytestmark = pytest.mark.peers

TOOL = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 800
COUNT = PER_CODEC * len(CODECS)
FIRST_TIME_MS = 1_700_000_000_000
GROUP = "readers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A directory after an orderly stop, and what clients were told was in it."""

    data: Path
    #: Key and value of the record at each offset of `dumped-0`.
    records: list[tuple[str, str]]

    def files(self, *suffixes: str, directory: str = "dumped-0") -> list[Path]:
        return sorted(p for p in (self.data / directory).iterdir() if p.suffix in suffixes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("dump")
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with running_oncelog(directory, settings) as oncelog:
        records = _produce(oncelog)
        _commit_offsets(oncelog)
    return Written(data=oncelog.data, records=records)


def _produce(oncelog: Oncelog) -> list[tuple[str, str]]:
    """One idempotent producer for each codec, one after the other; times grow with the offset."""
    address = {"bootstrap.servers": oncelog.bootstrap_servers, "log_level": 0}
    oncelog.create_topic("dumped", config={"segment.bytes": str(1 << 20)})
    noise = random.Random(4711)
    records: list[tuple[str, str]] = []
    for codec in CODECS:
        producer = Producer(
            {
                **address,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.num.messages": 20,
                "linger.ms": 5,
            }
        )
        for number in range(PER_CODEC):
            key, value = f"{codec}-{number}", noise.randbytes(700).hex()
            at_ms = FIRST_TIME_MS + len(records)
            producer.produce("dumped", value, key, timestamp=at_ms, headers=[("codec", codec)])
            records.append((key, value))
        assert producer.flush(20) == 0
    return records


def _commit_offsets(oncelog: Oncelog) -> None:
    consumer = Consumer(
        {"bootstrap.servers": oncelog.bootstrap_servers, "log_level": 0, "group.id": GROUP}
    )
    consumer.commit(offsets=[TopicPartition("dumped", 0, 1234)], asynchronous=False)
    consumer.close()


def dump(files: list[Path], *options: str) -> Output:
    return run(KAFKA, TOOL, "--files", ",".join(map(str, files)), *options)


def field(name: str, line: str) -> str:
    """The value behind `name:` in a line of the tool's."""
    found = re.search(rf"(?:^|\s){name}: (\S+)", line)
    assert found is not None, f"no {name} in {line[:300]}"
    return found[1]


def test_the_log_spans_several_segments(written: Written) -> None:
    assert len(written.files(".log")) >= 3
    assert len(written.files(".snapshot")) == 2


def test_every_record_is_dumped_as_it_was_produced(written: Written) -> None:
    output = dump(written.files(".log"), "--deep-iteration", "--print-data-log")

    lines = [line for line in output.stdout.splitlines() if line.startswith("| offset:")]
    dumped = [(field("key", line), field("payload", line)) for line in lines]
    assert [int(field("offset", line)) for line in lines] == list(range(COUNT))
    assert [int(field("CreateTime", line)) - FIRST_TIME_MS for line in lines] == list(range(COUNT))
    assert [int(field("sequence", line)) for line in lines] == list(range(PER_CODEC)) * len(CODECS)
    assert {field("headerKeys", line) for line in lines} == {"[codec]"}
    assert dumped == written.records


def test_every_batch_is_valid_and_carries_its_producer(written: Written) -> None:
    output = dump(written.files(".log"))

    batches = [line for line in output.stdout.splitlines() if line.startswith("baseOffset:")]
    assert len(batches) > 100
    assert {field("isvalid", line) for line in batches} == {"true"}
    assert {field("partitionLeaderEpoch", line) for line in batches} == {"0"}
    for line in batches:
        nth, sequence = divmod(int(field("baseOffset", line)), PER_CODEC)
        assert field("compresscodec", line) == CODECS[nth]
        assert int(field("baseSequence", line)) == sequence
        assert field("producerEpoch", line) == "0"
    owners = [{field("producerId", b) for b in batches if field("compresscodec", b) == codec}
              for codec in CODECS]  # fmt: skip
    assert all(len(owner) == 1 for owner in owners)
    assert len(set.union(*owners)) == len(CODECS)


def test_logs_and_indexes_agree_without_a_complaint(written: Written) -> None:
    files = written.files(".log", ".index", ".timeindex")

    output = dump(files, "--deep-iteration")

    # The tool starts to count at -1 in every file, also in Kafka's own: each segment but the first
    # gets this one complaint, and there may be no other.
    bases = [int(path.stem) for path in written.files(".log")][1:]
    complaints = sorted(line.strip() for line in output.stderr.splitlines() if line.strip())
    expected = [f"Non-consecutive offsets in {path}" for path in written.files(".log")[1:]]
    assert complaints == sorted(expected + [f"-1 is followed by {base}" for base in bases])
    entries = [line for line in output.stdout.splitlines() if re.match(r"offset: \d+ pos", line)]
    times = [line for line in output.stdout.splitlines() if re.match(r"timestamp: \d+ off", line)]
    assert len(entries) > 100
    assert len(times) > 100


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_indexes_pass_the_tools_own_checks(written: Written, option: str) -> None:
    files = written.files(".index", ".timeindex")

    output = dump(files, option)

    assert output.stderr == ""
    for path in files:
        assert f"Dumping {path}" in output.stdout
        if option == "--index-sanity-check":
            assert f"{path} passed sanity check." in output.stdout


def test_the_snapshot_of_the_end_knows_every_producer(written: Written) -> None:
    newest = written.files(".snapshot")[-1]

    output = dump([newest])

    producers = [line for line in output.stdout.splitlines() if line.startswith("producerId:")]
    assert newest.stem == f"{COUNT:020d}"
    assert [int(field("lastOffset", line)) for line in producers] == [
        PER_CODEC * (nth + 1) - 1 for nth in range(len(CODECS))
    ]
    assert {field("lastSequence", line) for line in producers} == {str(PER_CODEC - 1)}
    assert {field("producerEpoch", line) for line in producers} == {"0"}


def test_committed_offsets_are_decoded(written: Written) -> None:
    logs = written.files(".log", directory="__consumer_offsets-0")

    output = dump(logs, "--offsets-decoder")

    assert '"group":"readers","topic":"dumped","partition":0' in output.stdout
    assert '"offset":1234' in output.stdout
    assert output.stderr == ""
