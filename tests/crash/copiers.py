"""Copiers of several client libraries, each in a process of its own; the Java one if its JARs are here."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog.check import Recorder
from oncelog.testing.workload.copier import GROUP, SOURCE, TARGET, TARGET_PARTITIONS
from oncelog.testing.workload.feeding import Copies, note_committed, parts_of
from oncelog.testing.workload.final import read_everything
from oncelog.testing.workload.load import PATIENT
from oncelog.testing.workload.rest import come_to_rest
from tests.client import aftermath
from tests.crash.brokers import ROOT
from tests.peers.java import KAFKA, command

SEED: Final = int(os.environ.get("ONCELOG_TEST_SEED", "55"))
PARTITIONS: Final = 12
ALL_PARTS: Final = (*parts_of(SOURCE, PARTITIONS), *parts_of(TARGET, TARGET_PARTITIONS))
JAVA_COPIER: Final = Path(__file__).parent / "JavaCopier.java"
FINAL_S: Final = 20.0


def start(
    clients: Sequence[str], bootstrap: str, recorder_port: int, log: Path
) -> dict[str, subprocess.Popen[bytes]]:
    """Start one copier for each name of a library; by their transactional ids."""
    started = {}
    with log.open("ab") as stream:
        for number, client in enumerate(clients):
            name = f"copier-{number}-{client}"
            words = [name, bootstrap, str(recorder_port), str(SEED)]
            line = [sys.executable, "-m", "tests.crash.copier", client, *words]
            if client == "java":
                line = command(KAFKA, str(JAVA_COPIER), [*words, str(TARGET_PARTITIONS)])
            started[name] = subprocess.Popen(line, cwd=ROOT, stderr=stream)
    return started


def offsets_of(bootstrap: str) -> dict[int, int]:
    """How far the group of copiers has come."""
    return aftermath.committed(bootstrap, GROUP, SOURCE)


def finish(recorder: Recorder, bootstrap: str, *, rest_s: float) -> dict[int, list[int]]:
    """The end of the history; answers the copies that a fresh reader finds, by their input."""
    found = {f"{SOURCE}:{index}": offset for index, offset in offsets_of(bootstrap).items()}
    note_committed(recorder, GROUP, found)
    come_to_rest(recorder, bootstrap, ALL_PARTS, run=SEED, within_s=rest_s)
    copies = Copies(PARTITIONS)
    settings = {**PATIENT, "bootstrap.servers": bootstrap}
    read_everything(recorder, settings, ALL_PARTS, run=SEED, within_s=FINAL_S, seen=copies.add)
    return copies.values
