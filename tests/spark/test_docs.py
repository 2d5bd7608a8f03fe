"""docs/spark.md knows every option and parameter, and quotes errors as they are."""

import inspect
import re
from pathlib import Path

import pytest

from oncelog.client.errors import BadSettings
from oncelog.spark import Pipeline, Sink, audit
from oncelog.spark.source_options import parse_options

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "spark.md").read_text()
#: Seams for tests, not for users.
UNDOCUMENTED = {"self", "spark", "servers", "write"}


def section(title: str) -> str:
    return re.split(r"\n##+ ", GUIDE.split(f" {title}\n", 1)[1], maxsplit=1)[0]


def rows(title: str) -> str:
    """The first cells of a section's tables."""
    return "\n".join(line.split("|")[1] for line in section(title).splitlines() if "|" in line)


def test_every_option_of_the_source_is_in_the_table() -> None:
    with pytest.raises(BadSettings) as refused:
        parse_options({"qqqqqqqqqqqqqqqq": "", "kafka.bootstrap.servers": "there:1"})
    (names,) = re.findall(r"there are (.*), and kafka", str(refused.value))

    assert [name for name in names.split(", ") if f"`{name}`" not in rows("Reading")] == []


@pytest.mark.parametrize(
    ("title", "called"), [("Sink", Sink), ("Pipeline", Pipeline), ("Audit", audit)]
)
def test_every_parameter_is_in_its_table(title: str, called: object) -> None:
    assert callable(called)
    names = set(inspect.signature(called).parameters) - UNDOCUMENTED

    assert {name for name in names if f"`{name}`" not in rows(title)} == set()


def test_every_quoted_error_is_one_that_the_code_says() -> None:
    code = "\n".join(
        path.read_text()
        for part in ("spark", "client")
        for path in (ROOT / "src" / "oncelog" / part).glob("*.py")
    )
    # Strings that stand on several lines, and what is filled in.
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    said = re.findall(r"^\| `(.*?)`(?: \(a warning\))? \|", section("When it stops"), re.MULTILINE)
    fragments = [
        fragment
        for sentence in said
        for fragment in re.split(r" ?(?:'?NAME'?|\.\.\.|\d[\d.]*) ?", sentence)
        if len(fragment) > 3
    ]

    assert len(said) > 20
    assert [each for each in fragments if each.strip(" ,:;") not in code] == []
