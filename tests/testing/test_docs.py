"""docs/testing.md: the example runs, and every fault is in a table."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog import testing
from oncelog.testing import faults

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_whole_test_of_the_guide_passes(tmp_path: Path) -> None:
    (example,) = [block for block in BLOCKS if "def test_every_payment" in block]
    path = tmp_path / "test_example.py"
    path.write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_code_of_the_guide_is_code_and_imports_what_there_is(block: str) -> None:
    compile(block, str(GUIDE), "exec")
    names = re.findall(r"from oncelog\.testing import (.*)", block)
    assert all(hasattr(testing, name) for line in names for name in line.split(", "))


def test_every_fault_is_in_a_table() -> None:
    rows = "\n".join(line for line in GUIDE.read_text().splitlines() if line.startswith("| `"))
    made = [
        name
        for name in testing.__all__
        if callable(getattr(faults, name, None)) and not name[0].isupper()
    ]
    assert len(made) == 18
    assert [name for name in made if f"`{name}(" not in rows] == []
