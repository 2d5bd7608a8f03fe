"""What is written down for a client that was killed."""

from collections.abc import Callable
from pathlib import Path

from oncelog.check import Event, Kind, Op, Recorder, Run, open_history
from oncelog.testing.workload.recording import RecordingServer, RemoteRecorder


def events_after(path: Path, work: Callable[[RemoteRecorder], None]) -> tuple[list[Event], int]:
    """The history of a client that does some work and is gone; and the unknown ends counted."""
    with Recorder(path, Run()) as recorder:
        server = RecordingServer(recorder)
        client = RemoteRecorder(server.port)
        work(client)
        client.close()
        server.close()  # which waits until everything is written
    return list(open_history(path).events), server.unknown_count


def test_a_commit_that_was_announced_has_an_unknown_end(tmp_path: Path) -> None:
    def work(client: RemoteRecorder) -> None:
        call = client.ask("call", p=client.ask("process"), op="txn", steps=[["w", "a:0", 1]])
        client.ask("ending", call=call, end="commit", tc=5, group=["g", None, {"b:0": [0, 1]}])

    events, unknown_count = events_after(tmp_path / "history.jsonl", work)

    assert [event.kind for event in events] == [Kind.CALL, Kind.UNKNOWN]
    assert (events[1].op, events[1].tc) == (Op.TXN, 5)
    assert events[1].group is not None
    assert unknown_count == 1


def test_a_transaction_whose_commit_nobody_asked_for_has_failed(tmp_path: Path) -> None:
    def work(client: RemoteRecorder) -> None:
        client.ask("call", p=client.ask("process"), op="txn", steps=[["w", "a:0", 1]])

    events, unknown_count = events_after(tmp_path / "history.jsonl", work)

    assert [event.kind for event in events] == [Kind.CALL, Kind.FAIL]
    assert unknown_count == 0
