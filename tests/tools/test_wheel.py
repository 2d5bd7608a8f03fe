"""What users get: the wheel, in an environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import oncelog

ROOT = Path(__file__).parents[2]


def run(*command: str | Path) -> str:
    result = subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, timeout=100
    )
    return result.stdout


@pytest.mark.slow
def test_the_wheel_installs_and_answers_without_anything_that_the_broker_does_not_need(
    tmp_path: Path,
) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    quiet_pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*quiet_pip, "install", "--require-hashes", "-r", ROOT / "requirements/base.txt")
    run(*quiet_pip, "install", "--no-deps", wheel)

    version = run(tmp_path / "venv/bin/oncelog", "--version")
    installed = run(*quiet_pip, "list").lower()

    assert oncelog.__version__ in version
    assert "pyspark" not in installed
    assert "confluent" not in installed
