"""`oncelog serve` refuses what cannot work before it touches anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.cli.main import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "log.retention.msec=1"), "Did you mean log.retention.ms?"),
        (("--set", "num.partitions=0"), "takes a whole number of at least 1"),
        (("--config", "absent.toml"), "absent.toml cannot be read: No such file"),
    ],
)
def test_a_bad_setting_stops_the_start(
    words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"

    code = main(["serve", "--data", str(data), *words])

    assert code == 1
    assert says in capsys.readouterr().err
    assert not data.exists()


def test_a_bad_variable_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONCELOG_NUM_PARTITONS", "3")

    assert main(["serve", "--data", str(tmp_path)]) == 1
    assert "Did you mean num.partitions?" in capsys.readouterr().err


def test_a_broker_does_not_run_without_its_assertions(tmp_path: Path) -> None:
    words = ("-O", "-m", "oncelog", "serve", "--data", str(tmp_path / "data"))

    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)

    assert ended.returncode == 1
    assert ended.stderr == (
        "oncelog: A broker does not run under python -O: it relies on its assertions.\n"
    )
