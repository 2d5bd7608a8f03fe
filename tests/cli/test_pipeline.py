"""`oncelog pipeline` against a real broker, with progress committed as jobs commit it."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from oncelog.cli.main import main, parser_for
from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster
from oncelog.client.identity import Identity, Replaced, Transactional
from oncelog.core.types import TopicPartition
from oncelog.spark.ledger import Progress
from oncelog.spark.ledger_topic import ledger_partition, read_progress, write_progress
from oncelog.spark.offsets import Position
from oncelog.spark.target import PROGRESS_TOPIC

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker({"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(autouse=True)
def _bootstrap(broker: oncelog.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", broker.bootstrap_servers)


@pytest.fixture
def job(broker: oncelog.Broker) -> "Job":
    return Job(broker, f"job-{next(_numbers)}")


class Job:
    """Commits progress as a pipeline does, without Spark."""

    def __init__(self, broker: oncelog.Broker, name: str) -> None:
        self.name = name
        self.topic = f"in-{name}"
        self.identity: Identity | None = None
        self._servers = broker.bootstrap_servers

    def commit(self, query: str = "pipeline", **offsets: int) -> None:
        """Progress at these offsets of a topic that has two partitions."""
        progress = Progress(
            query=query,
            batch=4,
            fingerprint="f",
            rows=10,
            rejected=1,
            total_rows=50,
            committed_ms=1_700_000_000_000,
            position=Position(
                offsets={
                    TopicPartition(self.topic, int(number.removeprefix("p"))): offset
                    for number, offset in offsets.items()
                }
            ),
        )
        asyncio.run(self._commit(progress))

    async def _commit(self, progress: Progress) -> None:
        async with await Cluster.open(self._servers) as cluster:
            await create_topic(cluster, self.topic, partitions=2)
            transactional = Transactional(cluster, self.name, wait_s=10)
            identity = await transactional.fence(60_000)
            place = await ledger_partition(cluster, PROGRESS_TOPIC, self.name)
            await write_progress(transactional, cluster, identity, place, progress, patience_s=10)
            await transactional.commit(identity)
            # The next owner gets the id when all of the commit can be seen.
            self.identity = await transactional.fence(60_000)

    def progress(self) -> Progress | None:
        async def read() -> Progress | None:
            async with await Cluster.open(self._servers) as cluster:
                place = await ledger_partition(cluster, PROGRESS_TOPIC, self.name)
                return await read_progress(cluster, place, self.name)

        return asyncio.run(read())

    def go_on(self) -> None:
        """What a driver does next under its identity."""

        async def renew() -> None:
            assert self.identity is not None, "it has committed"
            async with await Cluster.open(self._servers) as cluster:
                await Transactional(cluster, self.name, wait_s=10).renew(self.identity, 60_000)

        asyncio.run(renew())

    def offsets(self) -> dict[int, int]:
        progress = self.progress()
        assert progress is not None
        return {place.partition: at for place, at in progress.position.offsets.items()}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["pipeline", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


# --- status -----------------------------------------------------------------------------------


def test_status_says_where_a_pipeline_is(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.commit(p0=0, p1=0)

    found = run_json(capsys, "status", job.name)

    transaction = found.pop("transaction")
    assert found == {
        "name": job.name,
        "kind": "pipeline",
        "batch": 4,
        "rows": 10,
        "rejected": 1,
        "total_rows": 50,
        "committed_at_ms": 1_700_000_000_000,
        "lag": 0,
        "partitions": [
            {"topic": job.topic, "partition": 0, "position": 0, "end": 0, "lag": 0},
            {"topic": job.topic, "partition": 1, "position": 0, "end": 0, "lag": 0},
        ],
    }
    assert transaction["state"] == "Empty"
    code, out, _ = run(capsys, "status", job.name)
    assert code == 0
    assert out.startswith(f"{job.name}, a pipeline\nLast commit: batch 4 with 10 rows, 1 to the")
    assert "Nothing is open." in out


def test_status_without_a_name_lists_all(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.commit("0b7c2a9e-query", p0=3)

    code, out, _ = run(capsys, "status")

    (line,) = [line for line in out.splitlines() if line.startswith(f"{job.name} ")]
    assert code == 0
    assert line.split()[1:5] == ["query", "0b7c2a9e-query", "4", "50"]
    assert [each["kind"] for each in run_json(capsys, "status") if each["name"] == job.name] == [
        "query 0b7c2a9e-query"
    ]


def test_topics_that_are_elsewhere_have_no_lag(
    broker: oncelog.Broker, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.commit(p0=3, p7=5)

    found = run_json(capsys, "status", job.name)

    assert found["lag"] is None
    assert [place["end"] for place in found["partitions"]] == [0, None]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("status", "nobody"), "'nobody' has committed nothing"),
        (("status", "--progress-topic", "nowhere"), "There is no topic nowhere on this cluster"),
        (("forget", "nobody", "--yes"), "'nobody' has committed nothing"),
        (("reset", "nobody", "--to", "latest", "--yes"), "'nobody' has committed nothing"),
        (("reset", "nobody", "--to", "yesterday", "--yes"), "say earliest, latest, or offsets"),
    ],
)
def test_what_is_not_there_is_said(
    job: Job, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    job.commit()

    code, _, err = run(capsys, *words)

    assert code == 1
    assert sentence in err


# --- reset ------------------------------------------------------------------------------------


def test_reset_moves_a_pipeline_and_stops_the_one_that_runs(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.commit(p0=5, p1=6)
    job.go_on()

    offsets = json.dumps({job.topic: {"1": 2}})
    code, out, _ = run(capsys, "reset", job.name, "--to", offsets, "--yes")

    assert (code, job.offsets()) == (0, {0: 5, 1: 2})
    assert out == f"{job.name} goes on from {job.topic}-0 at 5, {job.topic}-1 at 2.\n"
    progress = job.progress()
    assert progress is not None
    assert (progress.batch, progress.rows, progress.total_rows) == (5, 0, 50)
    with pytest.raises(Replaced):
        job.go_on()


@pytest.mark.parametrize("end", ["earliest", "latest"])
def test_reset_to_an_end_asks_the_cluster(
    job: Job, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    job.commit(p0=5, p1=6)

    assert run(capsys, "reset", job.name, "--to", end, "--yes")[0] == 0
    assert job.offsets() == {0: 0, 1: 0}


def test_reset_refuses_what_it_cannot_do(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.commit(p0=5, p7=6)

    code, _, err = run(capsys, "reset", job.name, "--to", "earliest", "--yes")
    assert (code, f"{job.topic}-7 is not on this cluster" in err) == (1, True)
    code, _, err = run(capsys, "reset", job.name, "--to", '{"other": {"0": 1}}', "--yes")
    assert (code, "does not read other-0" in err) == (1, True)
    code, _, err = run(capsys, "reset", job.name, "--to", '{"other": 3}', "--yes")
    assert (code, "instead of offsets" in err) == (1, True)
    assert job.offsets() == {0: 5, 7: 6}
    job.go_on()  # nobody was fenced in vain


def test_only_pipelines_are_moved(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.commit("a-streaming-query", p0=5)

    code, _, err = run(capsys, "reset", job.name, "--to", "earliest", "--yes")

    assert (code, "only a pipeline can be moved" in err) == (1, True)
    job.go_on()


# --- forget -----------------------------------------------------------------------------------


def test_forget_removes_the_progress_and_stops_the_job(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.commit(p0=5)

    code, out, _ = run(capsys, "forget", job.name, "--yes")

    assert (code, job.progress()) == (0, None)
    assert "begins anew" in out
    assert run(capsys, "status", job.name)[0] == 1
    with pytest.raises(Replaced):
        job.go_on()


@pytest.mark.parametrize("words", [("forget",), ("reset", "--to", "earliest")])
def test_nothing_happens_without_a_yes(
    job: Job,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    job.commit(p0=5)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    code, _, err = run(capsys, *words, job.name)

    assert (code, "add --yes" in err) == (2, True)
    assert job.offsets() == {0: 5}
    job.go_on()


def test_the_topic_that_is_looked_at_is_the_one_that_jobs_use() -> None:
    words = ["pipeline", "status"]

    assert parser_for(words).parse_args(words).progress_topic == PROGRESS_TOPIC
