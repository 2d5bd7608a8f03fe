"""The command line as a script sees it: exit codes, sentences and help."""

import argparse
import socket
from collections.abc import Iterator

import pytest

import oncelog
from oncelog.cli.main import COMMANDS, main, parser_for


def exit_code(*words: str) -> int:
    try:
        return main(words)
    except SystemExit as left:  # argparse leaves by itself
        return left.code if isinstance(left.code, int) else -1


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"oncelog {oncelog.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("serv",),
        ("topic",),
        ("topic", "create"),
        ("topic", "create", "t", "--partitions", "0"),
        ("topic", "create", "t", "--config", "retention.ms"),
        ("topic", "list", "--bootstrap", "a:b"),
        ("topic", "list", "--request-timeout", "nan"),
        ("serve",),
        ("serve", "--data", "d", "--listen", "localhost"),
        ("serve", "--data", "d", "--flush", "never"),
        ("produce",),
        ("produce", "t", "--json", "--key-separator", ":"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "--acks", "2"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--from", "5", "--group", "g"),
        ("consume", "t", "--partition", "0", "--group", "g"),
        ("consume", "t", "--max", "0"),
        ("group", "reset", "g", "--topic", "t"),
        ("group", "reset", "g", "--topic", "t:", "--to-latest"),
        ("group", "reset", "g", "--topic", "t", "--to-latest", "--to-earliest"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "oncelog" in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("topic", "describe", "t"),
        ("group", "list"),
        ("produce", "t"),
        ("consume", "t"),
    ],
)
def test_no_broker_exits_with_1_and_one_sentence(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"

        assert exit_code(*words, "--bootstrap", address) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"oncelog: {address} cannot be reached: Connection refused.\n"


def test_the_environment_names_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "nowhere:x")

    assert exit_code("topic", "list") == 2
    assert "'nowhere:x' has no port" in capsys.readouterr().err


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_verb_has_help_with_an_example(command: str) -> None:
    (chosen,) = (
        found for found in parsers(parser_for([command])) if found.prog == f"oncelog {command}"
    )

    for parser in parsers(chosen):
        text = parser.format_help()
        assert parser.description, parser.prog
        assert f"{parser.prog} " in text.partition("example:")[2], parser.prog
