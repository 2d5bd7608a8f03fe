"""The command line against a broker of our own, each a process of its own."""

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serving import ONCELOG, Serving, serving


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("data")
    with serving(data, "--flush", "os", "--set", "group.initial.rebalance.delay.ms=0") as found:
        yield found


def out(ended: subprocess.CompletedProcess[bytes]) -> str:
    """What a command printed, if it succeeded."""
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def refusal(ended: subprocess.CompletedProcess[bytes]) -> str:
    """What a command said when it failed: one sentence and nothing else."""
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.count(b"\n") == 1
    return ended.stderr.decode()


# --- serve ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["auto", "asyncio"])
def test_a_broker_says_when_it_is_ready_and_stops_when_told(
    tmp_path: Path, number: signal.Signals, loop: str
) -> None:
    with serving(tmp_path, "--loop", loop) as broker:
        assert re.fullmatch(r"oncelog listening on 127\.0\.0\.1:[1-9][0-9]*", broker.ready_line)
        assert out(broker.oncelog("topic", "list")) == ""

        began = time.monotonic()
        broker.process.send_signal(number)
        printed, _ = broker.process.communicate(timeout=30)

        assert broker.process.returncode == 0
        assert time.monotonic() - began < 5
        assert printed == ""


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        out(broker.oncelog("produce", "t", given="one\ntwo\n"))

    with serving(tmp_path) as broker:
        assert out(broker.oncelog("consume", "t", "--max", "2")) == "one\ntwo\n"


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        second = broker.oncelog("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0")

        assert str(tmp_path) in refusal(second)
        assert out(broker.oncelog("topic", "list")) == ""


def test_a_directory_of_a_newer_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    identity = tmp_path / "meta.properties"
    identity.write_text(identity.read_text().replace("oncelog.format=1", "oncelog.format=99"))
    before = contents(tmp_path)

    words = ("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    ended = subprocess.run([*ONCELOG, *words], capture_output=True, timeout=60)

    assert "format 99" in refusal(ended)
    assert contents(tmp_path) == before


def contents(data: Path) -> dict[Path, bytes]:
    """Every file but the lock, in which whoever looks at the directory leaves its process id."""
    files = (path for path in data.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        words = ("serve", "--data", str(tmp_path), "--listen", address, "--log-level", "error")
        ended = subprocess.run([*ONCELOG, *words], capture_output=True, timeout=60)

    assert f"cannot listen on {address}" in refusal(ended)


def test_log_lines_can_be_json(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as broker:
        broker.process.terminate()
        _, log = broker.process.communicate(timeout=30)

    levels = {json.loads(line)["level"] for line in log.splitlines()}
    assert levels == {"info"}


def test_clients_are_sent_to_the_advertised_address(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        elsewhere = f"127.0.0.1:{closed.getsockname()[1]}"
        with serving(tmp_path, "--advertise", elsewhere) as broker:
            created = broker.oncelog("topic", "create", "t", "--request-timeout", "0.5")

    assert f"{elsewhere} cannot be reached" in refusal(created)


# --- produce and consume --------------------------------------------------------------------


def test_lines_come_out_as_they_went_in(broker: Serving) -> None:
    lines = "".join(f"{number}\n" for number in range(20_000))

    out(broker.oncelog("produce", "lines", "--compression", "lz4", given=lines))

    assert out(broker.oncelog("consume", "lines", "--max", "20000")) == lines


def test_json_lines_carry_everything_from_topic_to_topic(broker: Serving) -> None:
    given = (
        b'{"key":"k","value":"v","headers":[["h","1"],["h",null]],"timestamp":1700000000000}\n'
        b'{"key":null,"value":{"base64":"/wA="},"headers":[],"timestamp":1700000000001}\n'
        b'{"key":"gone","value":null,"headers":[],"timestamp":1700000000002}\n'
    )
    out(broker.oncelog("produce", "json-a", "--json", given=given))
    first = out(broker.oncelog("consume", "json-a", "--json", "--max", "3"))

    out(broker.oncelog("produce", "json-b", "--json", given=first))
    second = out(broker.oncelog("consume", "json-b", "--json", "--max", "3"))

    assert second == first.replace("json-a", "json-b")
    places = {"topic": "json-a", "partition": 0}
    expected = [
        {**places, "offset": offset, **json.loads(line)}
        for offset, line in enumerate(given.splitlines())
    ]
    assert [json.loads(line) for line in first.splitlines()] == expected


def test_consume_begins_where_it_is_told(broker: Serving) -> None:
    given = "".join(
        f'{{"value":"{number}","timestamp":{1_700_000_000_000 + 1000 * number}}}\n'
        for number in range(10)
    )
    out(broker.oncelog("produce", "starts", "--json", given=given))

    def first_after(*words: str) -> str:
        return out(broker.oncelog("consume", "starts", "--max", "1", *words))

    assert first_after("--from", "beginning") == "0\n"
    assert first_after("--from", "7") == "7\n"
    assert first_after("--from", "2023-11-14T22:13:23Z") == "3\n"
    assert first_after("--from", "2023-11-14T22:13:22.5") == "3\n"
    assert first_after("--from", "end", "--timeout", "0.3") == ""
    assert first_after("--from", "1000", "--timeout", "0.3") == ""


def test_keys_are_split_off_and_put_back(broker: Serving) -> None:
    out(broker.oncelog("produce", "keys", "--key-separator", "=", given="a=1\nb=2=3\n"))

    shown = out(broker.oncelog("consume", "keys", "--key-separator", " -> ", "--max", "2"))

    assert shown == "a -> 1\nb -> 2=3\n"


def test_consume_ends_when_its_reader_has_had_enough(broker: Serving) -> None:
    out(broker.oncelog("produce", "pipe", given="one\ntwo\n"))

    # No further record comes, so nothing but the closed pipe can end it.
    with subprocess.Popen(
        [*ONCELOG, "consume", "pipe"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=broker.env,
    ) as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline() == b"one\n"
        consume.stdout.close()

        assert consume.wait(timeout=30) == 0
        assert consume.stderr.read() == b""


def test_an_interrupt_exits_with_130(broker: Serving) -> None:
    out(broker.oncelog("produce", "interrupt", given="one\n"))

    with subprocess.Popen(
        [*ONCELOG, "consume", "interrupt"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=broker.env,
    ) as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline() == b"one\n"
        consume.send_signal(signal.SIGINT)

        assert consume.wait(timeout=30) == 130
        assert consume.stderr.read() == b""


def test_produce_writes_what_comes_before_the_end_of_its_input(broker: Serving) -> None:
    out(broker.oncelog("produce", "live", given="first\n"))
    with (
        subprocess.Popen(
            [*ONCELOG, "produce", "live"], stdin=subprocess.PIPE, env=broker.env
        ) as produce,
        subprocess.Popen(
            [*ONCELOG, "consume", "live", "--from", "1", "--max", "1", "--timeout", "30"],
            stdout=subprocess.PIPE,
            env=broker.env,
        ) as consume,
    ):
        assert produce.stdin is not None
        produce.stdin.write(b"second\n")
        produce.stdin.flush()

        assert consume.communicate(timeout=60)[0] == b"second\n"
        produce.stdin.close()
        assert produce.wait(timeout=30) == 0


def test_a_record_that_is_too_large_is_said_to_be(broker: Serving) -> None:
    said = refusal(broker.oncelog("produce", "large", given="x" * 2_000_000))

    assert "1 of 1 records not acknowledged" in said
    assert "MessageSizeTooLarge" in said


def test_a_topic_that_is_not_there_is_not_made_by_reading(broker: Serving) -> None:
    said = refusal(broker.oncelog("consume", "absent"))

    assert said == "oncelog: Topic absent: UNKNOWN_TOPIC_OR_PARTITION\n"
    assert "absent" not in out(broker.oncelog("topic", "list")).split()


# --- topics ---------------------------------------------------------------------------------


def test_the_life_of_a_topic(broker: Serving) -> None:
    words = ("--partitions", "2", "--config", "retention.ms=60000")
    assert out(broker.oncelog("topic", "create", "life", *words)) == (
        "Created topic life with 2 partitions.\n"
    )
    assert "TOPIC_ALREADY_EXISTS" in refusal(broker.oncelog("topic", "create", "life"))
    out(broker.oncelog("topic", "create", "life", "--if-not-exists"))

    out(broker.oncelog("topic", "alter", "life", "--partitions", "3", "--config", "segment.ms=9"))
    out(broker.oncelog("topic", "alter", "life", "--delete-config", "retention.ms"))
    (view,) = json.loads(out(broker.oncelog("topic", "describe", "life", "--json")))
    assert view["configs"] == {"segment.ms": "9"}
    assert [p["end_offset"] for p in view["partitions"]] == [0, 0, 0]

    assert out(broker.oncelog("topic", "delete", "life")) == "Deleted topic life.\n"
    assert "life" not in out(broker.oncelog("topic", "list")).split()


def test_a_bad_setting_of_a_topic_is_refused_with_a_suggestion(broker: Serving) -> None:
    ended = broker.oncelog("topic", "create", "bad", "--config", "retention.msec=1")

    assert "Did you mean retention.ms?" in refusal(ended)


# --- groups ---------------------------------------------------------------------------------


def test_the_life_of_a_group(broker: Serving) -> None:
    out(broker.oncelog("topic", "create", "work", "--partitions", "2"))
    given = "".join(f'{{"value":"{n}","partition":0}}\n' for n in range(10))
    out(broker.oncelog("produce", "work", "--json", given=given))
    in_group = ("consume", "work", "--group", "crew", "--max")

    assert out(broker.oncelog(*in_group, "4")) == "0\n1\n2\n3\n"
    assert out(broker.oncelog(*in_group, "2")) == "4\n5\n"

    view = json.loads(out(broker.oncelog("group", "describe", "crew", "--json")))
    first = next(row for row in view["offsets"] if row["partition"] == 0)
    assert view["state"] == "Empty"
    assert (first["committed"], first["end"], first["lag"]) == (6, 10, 4)

    reset = ("group", "reset", "crew", "--topic", "work:0", "--shift-by", "-2")
    out(broker.oncelog(*reset))
    assert out(broker.oncelog(*in_group, "1")) == "6\n"
    out(broker.oncelog(*reset, "--execute"))
    assert out(broker.oncelog(*in_group, "1")) == "5\n"

    assert "crew" in out(broker.oncelog("group", "list"))
    assert out(broker.oncelog("group", "delete", "crew")) == "Deleted group crew.\n"
    assert "GROUP_ID_NOT_FOUND" in refusal(broker.oncelog("group", "describe", "crew"))


def test_a_group_with_members_shows_them_and_cannot_be_moved(broker: Serving) -> None:
    out(broker.oncelog("produce", "busy", given="one\n"))
    with subprocess.Popen(
        [*ONCELOG, "consume", "busy", "--group", "at-work"],
        stdout=subprocess.PIPE,
        env=broker.env,
    ) as consume:
        assert consume.stdout is not None
        assert consume.stdout.readline() == b"one\n"

        view = json.loads(out(broker.oncelog("group", "describe", "at-work", "--json")))
        reset = ("group", "reset", "at-work", "--all-topics", "--to-earliest", "--execute")
        said = refusal(broker.oncelog(*reset))
        deleted = broker.oncelog("group", "delete", "at-work")
        consume.send_signal(signal.SIGINT)
        consume.wait(timeout=30)

    (member,) = view["members"]
    assert view["state"] == "Stable"
    assert member["client_id"] == "oncelog-consume"
    assert member["partitions"] == [{"topic": "busy", "partition": 0}]
    assert "stop all of them first" in said
    assert (deleted.returncode, b"NON_EMPTY_GROUP" in deleted.stderr) == (1, True)
    # A member that leaves says goodbye, so that the next one does not wait for its session to end.
    after = json.loads(out(broker.oncelog("group", "describe", "at-work", "--json")))
    assert after["state"] == "Empty"
