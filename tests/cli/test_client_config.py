"""Client settings from a file, for clusters that do not let everybody in."""

import argparse
from pathlib import Path

import pytest

from oncelog.cli.client_config import read_properties, settings_of
from oncelog.cli.failure import CommandFailed
from oncelog.cli.main import main
from tests.peers.secured import SecuredKafka


def test_a_file_is_read_as_kafkas_tools_read_theirs(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# who we are\n\nsasl.username = alice\nsasl.password=a=b \n!old\n")
    assert read_properties(path) == {"sasl.username": "alice", "sasl.password": "a=b"}


def test_the_address_and_the_patience_are_the_arguments(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=elsewhere:1\nclient.id=me\n")
    args = argparse.Namespace(client_config=path, bootstrap="here:9092", request_timeout=7.0)
    settings = settings_of(args)
    assert (settings.bootstrap_servers, settings.timeout_s) == ("here:9092", 7.0)
    assert settings.client_id == "me"


def test_a_line_that_says_nothing_is_refused_without_being_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.username=alice\nsecret\n")
    with pytest.raises(CommandFailed, match=r"line 2: write NAME=VALUE") as failed:
        read_properties(path)
    assert "secret" not in str(failed.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--client-config", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.peers
def test_a_secured_kafka_lets_the_command_in(
    secured_broker: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = secured_broker.java_options("SASL_SSL", "SCRAM-SHA-512")
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    given = ["--bootstrap", options["bootstrap.servers"], "--client-config", str(path)]
    assert main(["topic", "create", "through-the-door", "--partitions", "1", *given]) == 0
    assert main(["topic", "list", *given]) == 0
    assert "through-the-door" in capsys.readouterr().out
