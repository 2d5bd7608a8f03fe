"""The message modules are what `tools/messages.py` makes of Kafka's definitions."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.wire import messages
from oncelog.wire.messages.index import NAMES
from tests.peers.java import KAFKA, ROOT, jar
from tools.messages import render

MESSAGES = Path(messages.__file__).parent


@pytest.mark.parametrize("api_key", NAMES, ids=NAMES.values())
def test_request_and_response_carry_their_api_key(api_key: int) -> None:
    assert messages.request_class(api_key).API_KEY == api_key
    assert messages.response_class(api_key).API_KEY == api_key


@pytest.mark.peers
def test_the_modules_are_what_the_definitions_say(tmp_path: Path) -> None:
    for name, text in render(jar(KAFKA, "kafka-clients")).items():
        (tmp_path / name).write_text(text)
    configuration = str(ROOT / "pyproject.toml")
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--config", configuration]
    subprocess.run([*ruff, str(tmp_path)], check=True)

    made = {path.name: path.read_text() for path in tmp_path.glob("*.py")}

    kept = {path.name: path.read_text() for path in MESSAGES.glob("*.py")}
    del kept["__init__.py"]
    assert made == kept
