"""`python -m tests.teeth [--write] [NAME ...]`: hunt the bugs, and keep the table in `docs/proof.md`."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.teeth.bugs import BUGS
from tests.teeth.planted import Hunt, hunt
from tests.teeth.table import DOCUMENT, table, with_table


def main() -> int:
    """Hunt what was asked for; 1 if a bug got away."""
    parser = argparse.ArgumentParser(prog="python -m tests.teeth", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these bugs")
    parser.add_argument(
        "--write", action="store_true", help=f"write the table into {DOCUMENT.name}"
    )
    parser.add_argument("--seeds", type=int, help="try so many seeds, whatever a bug says")
    options = parser.parse_args()
    hunts: list[Hunt] = []
    for bug in BUGS:
        if options.names and bug.name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = hunt(bug, Path(folder), seeds=options.seeds)
        hunts.append(found)
        caught_by = ", ".join(found.caught_by) or "NOT CAUGHT"
        print(f"{bug.name}: {caught_by} ({found.seeds} seeds, {found.seconds:.1f} s)", flush=True)
    if options.write:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), table(hunts)))
    return 0 if all(each.caught_by for each in hunts) else 1


if __name__ == "__main__":
    sys.exit(main())
