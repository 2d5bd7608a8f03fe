"""What a person sees: lines that stay, and one that changes."""

import io

import pytest

from oncelog.observe.terminal import Terminal
from oncelog.spark.display import Display
from oncelog.spark.exactly_once import Done
from oncelog.spark.pipeline import Summary
from oncelog.spark.steps import Event, Step


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_the_changing_line_now_and_then() -> None:
    clock = [0.0]
    file = io.StringIO()
    terminal = Terminal(file, every_s=10, now=lambda: clock[0])

    for clock[0] in (1.0, 5.0, 10.0, 11.0, 25.0):
        terminal.show(f"at {clock[0]:.0f}")
    terminal.say("done")

    assert file.getvalue() == "at 10\nat 25\ndone\n"


def test_a_terminal_keeps_the_changing_line_below_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    screen = Tty()
    terminal = Terminal(screen)

    terminal.show("a line that is too long")
    terminal.say("said")
    terminal.clear()

    clear = "\r\x1b[K"
    assert screen.getvalue() == f"{clear}a line th{clear}said\na line th{clear}"


def test_the_line_says_what_was_done_and_what_is_being_done() -> None:
    display = Display(Terminal(io.StringIO()), "invoicing")

    display.step(Event(step=Step.RETRIED, name="invoicing", batch=4))
    display.step(Event(step=Step.PLANNED, name="invoicing", batch=4))
    last = Done(batch=3, rows=500, seconds=0.5)
    display.batch(Summary("invoicing", batches=4, rows=1500, rejected=2, lag=70, last=last))

    assert display.line() == (
        "invoicing · 1,500 rows · 2 dead letters · 4 transactions · 1,000 rows/s · lag 70 · "
        "1 retry · writing batch 4"
    )


def test_without_batches_the_line_says_what_it_waits_for() -> None:
    display = Display(Terminal(io.StringIO()), "invoicing")

    assert display.line() == "invoicing · connecting"


def test_the_display_ends_with_its_block() -> None:
    file = io.StringIO()

    with Display(Terminal(file, every_s=0), "invoicing") as display:
        display.step(Event(step=Step.FENCED, name="invoicing"))

    assert all(line == "invoicing · looking for rows" for line in file.getvalue().splitlines())
