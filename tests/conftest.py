"""Which tests run: those that need Kafka's JARs are left out loudly, never skipped in silence."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.peers.java import is_complete
from tests.peers.kafka import Kafka, running_kafka
from tests.peers.secured import SecuredKafka, secured_kafka

# A busy machine is no failure, so examples have no deadline. A commit is judged by the same examples
# each time; whoever works on it sees new ones.
settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

LEFT_OUT = pytest.StashKey[dict[str, int]]()


@pytest.fixture(autouse=True)
def log_handlers_stay_as_they_were() -> Iterator[None]:
    """A command that sets up logging in this process must not speak into later tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Kafka]:
    """One Apache Kafka for all tests that compare us with it; mark them `peers`."""
    with running_kafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def secured_broker() -> Iterator[SecuredKafka]:
    """One Apache Kafka with TLS and users; mark the tests `peers`."""
    with secured_kafka() as kafka:
        yield kafka


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peers",
        choices=("auto", "require", "leave-out"),
        default="auto",
        help="tests that need the JARs of `make peers`: run them if the JARs are there (auto), "
        "fail if they are not (require), or leave these tests out",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice = config.getoption("--peers")
    if choice == "require" or (choice == "auto" and is_complete()):
        return
    left_out = [item for item in items if item.get_closest_marker("peers")]
    if not left_out:
        return
    items[:] = [item for item in items if not item.get_closest_marker("peers")]
    config.hook.pytest_deselected(items=left_out)
    counts = config.stash.setdefault(LEFT_OUT, {})
    for item in left_out:
        path = str(Path(item.path).relative_to(config.rootpath))
        counts[path] = counts.get(path, 0) + 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = terminalreporter.config.stash.get(LEFT_OUT, None)
    if not counts:
        return
    terminalreporter.section("NOT ALL TESTS RAN", sep="=", red=True, bold=True)
    terminalreporter.write_line("Left out, since Kafka's JARs are not here (`make peers`):")
    for path, count in sorted(counts.items()):
        terminalreporter.write_line(f"  {path}: {count}")
