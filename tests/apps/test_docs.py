"""docs/apps.md knows every parameter and every exception, and its test passes."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import oncelog
from oncelog import apps
from tests.apps.conftest import values

GUIDE = (Path(__file__).parents[2] / "docs" / "apps.md").read_text()


def rows() -> str:
    """The first cells of all tables."""
    return "\n".join(line.split("|")[1] for line in GUIDE.splitlines() if line.startswith("|"))


@pytest.mark.parametrize("called", [apps.App, apps.App.listener])
def test_every_parameter_is_in_a_table(called: Callable[..., object]) -> None:
    names = set(inspect.signature(called).parameters) - {"self"}

    assert {name for name in names if f"`{name}`" not in rows()} == set()


def test_every_exception_and_delivery_is_in_a_table() -> None:
    errors = {
        name
        for name, kind in vars(apps).items()
        if inspect.isclass(kind) and issubclass(kind, apps.AppError) and kind is not apps.AppError
    }

    assert len(errors) == 15
    assert {name for name in errors | set(apps.Delivery) if f"`{name}`" not in rows()} == set()


@pytest.mark.timeout(180)
def test_the_test_in_the_guide_passes(oncelog_broker: oncelog.Broker) -> None:
    (example,) = re.findall(r"```python\n(import threading.*?)```", GUIDE, re.DOTALL)
    found: dict[str, Callable[[oncelog.Broker], None]] = {}
    exec(compile(example, "docs/apps.md", "exec"), found)

    found["test_every_order_is_billed_once"](oncelog_broker)

    assert len(values(oncelog_broker.bootstrap_servers, "invoices")) == 20
