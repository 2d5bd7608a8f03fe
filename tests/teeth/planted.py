"""A copy of the package with a bug in it, and the hunt for the bug."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.teeth.bug import Bug, DoesNotApply

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src/oncelog"
HUNT_S: Final = 110.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """What a hunt came to."""

    bug: Bug
    #: Anomalies or failures; none where the bug got away.
    caught_by: tuple[str, ...]
    #: How many seeds were run.
    seeds: int
    #: Of the processor, so that it does not matter what else runs.
    seconds: float
    #: What the process wrote to standard error.
    log: str


def plant(bug: Bug, folder: Path) -> Path:
    """Copy the package into a folder and make the edits; returns where it is."""
    package = folder / "oncelog"
    # With the compiled files and their times: only what is edited has to be compiled again.
    shutil.copytree(PACKAGE, package)
    for edit in bug.edits:
        (package / edit.path).write_text(edit.applied(package))
    return package


def check_applies(bug: Bug) -> None:
    """Raise DoesNotApply unless each edit finds its place exactly once."""
    for edit in bug.edits:
        edit.applied(PACKAGE)
        if edit.old == edit.new:
            raise DoesNotApply(f"{bug.name} changes nothing in {edit.path}")


def hunt(bug: Bug, folder: Path, *, seeds: int | None = None) -> Hunt:
    """Plant a bug and run the simulation until it is caught, or its seeds are used up."""
    package = plant(bug, folder)
    count = bug.seeds if seeds is None else seeds
    words = [sys.executable, "-m", "tests.teeth.hunt", str(package), bug.workload, str(count)]
    began = _used_s()
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=HUNT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Hunt(
            bug=bug,
            caught_by=(),
            seeds=count,
            seconds=_used_s() - began,
            log=f"the hunt took longer than {HUNT_S:g} s",
        )
    if done.returncode:
        raise RuntimeError(f"the hunt for {bug.name} failed:\n{done.stderr}")
    answer = json.loads(done.stdout)
    return Hunt(
        bug=bug,
        caught_by=tuple(answer["caught_by"]),
        seeds=count if answer["seed"] is None else answer["seed"] + 1,
        seconds=_used_s() - began,
        log=done.stderr,
    )


def _used_s() -> float:
    """The processor's time that ended processes of ours have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
