"""Runs Java programs from the peers' JARs: Kafka's own tools, and small programs of ours."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = ROOT / ".peers"
KAFKA: Final = "kafka-4.3"
OLD_CLIENTS: Final = "clients-2.8"
SPARK_CONNECTOR: Final = "spark-connector"


class JavaFailed(Exception):
    """A Java program ended with an exit code other than 0, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a program printed."""

    stdout: str
    stderr: str


def is_complete() -> bool:
    """Whether `make peers` has fetched everything."""
    return all(
        (PEERS / name / ".complete").exists() for name in (KAFKA, OLD_CLIENTS, SPARK_CONNECTOR)
    )


def jars(peer: str) -> list[Path]:
    """All JARs of a peer; none if it has not been fetched."""
    return sorted((PEERS / peer).glob("*.jar"))


def jar(peer: str, name: str) -> Path:
    """The one JAR of a peer whose file name starts like this."""
    found = sorted((PEERS / peer).glob(f"{name}-[0-9]*.jar"))
    assert len(found) == 1, f"{name} in {peer}: {found}"
    return found[0]


#: Tools share two cores with the broker under test: they should start fast rather than run fast.
QUICK: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def command(
    peer: str, main: str, arguments: Sequence[str], *, options: Sequence[str] = QUICK
) -> list[str]:
    """The command line of a main class, or of a `.java` file that is compiled as it starts."""
    java = os.environ.get("JAVA") or shutil.which("java")
    assert java is not None, "there is no java here: `make setup` says what to install"
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [java, *options, log, "-cp", f"{PEERS / peer}/*", main, *arguments]


def run(
    peer: str,
    main: str,
    *arguments: str,
    timeout_s: float = 60,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Output:
    """Run a program to its end; what it printed, or an error with what it printed."""
    line = command(peer, main, arguments)
    try:
        done = subprocess.run(
            line,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise JavaFailed(
            f"{main} ran for more than {timeout_s} s\n{_text(expired.stdout)}\n{_text(expired.stderr)}"
        ) from expired
    if done.returncode != 0:
        raise JavaFailed(f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return Output(stdout=done.stdout, stderr=done.stderr)


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
