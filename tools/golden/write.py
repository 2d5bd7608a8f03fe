"""Writes `tests/wire/golden/` with kafka-clients' own message classes.

    python tools/golden/write.py [DIRECTORY]

What our codec is tested against must not come from our codec, so `Golden.java` fills each message
by rule and lets Kafka write it. Needs `make peers`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from oncelog.wire.messages.index import NAMES

ROOT: Final = Path(__file__).parents[2]
TARGET: Final = ROOT / "tests/wire/golden"


def write(directory: Path) -> None:
    """One file for each API that we know."""
    java = os.environ.get("JAVA") or shutil.which("java")
    assert java is not None, "there is no java here: `make setup` says what to install"
    classpath = f"{ROOT}/.peers/kafka-4.3/*"
    program = str(Path(__file__).with_name("Golden.java"))
    subprocess.run([java, "-cp", classpath, program, str(directory), *NAMES.values()], check=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
