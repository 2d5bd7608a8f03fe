"""What `docs/operations.md` names, the broker has: phrases of its log, metrics, settings."""

import inspect
import re
from pathlib import Path

from oncelog.observe import notes
from oncelog.runtime.config import BROKER_SETTINGS
from oncelog.server import metrics_page

DOCUMENT = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def first_column(header: str) -> list[str]:
    """What stands in backticks in the first column of the tables with this header."""
    found: list[str] = []
    is_inside = False
    for line in DOCUMENT.splitlines():
        if line.startswith(f"| {header} |"):
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside:
            found += re.findall(r"`([^`]+)`", line.split(" | ")[0])
    return found


def test_every_phrase_is_one_that_the_log_has() -> None:
    ours = [kind for kind in vars(notes).values() if hasattr(kind, "phrase")]
    known = {notes.line_of(kind)[1] for kind in [*notes.OF_THE_CORE, *ours]}
    known.add("a shard could not act")  # A refusal inside the broker, which is no note of its own.

    assert len(first_column("phrase")) > 8
    assert set(first_column("phrase")) <= known


def test_every_metric_is_documented_and_every_documented_one_is_there() -> None:
    served = set(re.findall(r'"(oncelog_\w+)"', inspect.getsource(metrics_page)))

    assert {name.partition("{")[0] for name in first_column("metric")} == served


def test_every_setting_exists_with_the_default_that_is_said() -> None:
    rows = re.findall(r"^\| `([a-z.]+)` \| (\S+) \|", DOCUMENT, re.MULTILINE)
    said = {name: text.strip("`") for name, text in rows}

    assert set(first_column("setting")) == set(said)
    for name, text in said.items():
        setting = BROKER_SETTINGS[name]
        assert setting.parse(text) == setting.default, name
