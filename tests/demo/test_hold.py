"""Whoever is to be killed stands still at the right moment."""

import os
import threading
from pathlib import Path

from oncelog.demo import hold


def test_only_one_is_held_and_goes_on_when_it_is_released(tmp_path: Path) -> None:
    hold.arm(tmp_path, "task")
    held = threading.Thread(target=hold.hold_if_armed, args=(tmp_path, "task"))
    held.start()
    while hold.held(tmp_path, "task") is None:
        pass

    hold.hold_if_armed(tmp_path, "task")  # nobody wants a second one: it returns
    assert hold.held(tmp_path, "task") == os.getpid()
    hold.release(tmp_path, "task")
    held.join(10)

    assert not held.is_alive()
    assert hold.held(tmp_path, "task") is None


def test_nobody_is_held_unless_somebody_wants_it(tmp_path: Path) -> None:
    hold.hold_if_armed(tmp_path, "driver")

    assert hold.held(tmp_path, "driver") is None
