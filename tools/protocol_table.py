"""Writes the table in `docs/protocol.md` from the registry of APIs.

python tools/protocol_table.py          # rewrite the table
python tools/protocol_table.py --check  # only say whether it is up to date
"""

import sys
from pathlib import Path
from typing import Final

from oncelog.api.registry import APIS
from oncelog.wire.messages import module_name, request_class

DOCUMENT: Final = Path(__file__).parents[1] / "docs/protocol.md"
BEGIN: Final = "<!-- table: made by tools/protocol_table.py -->"
END: Final = "<!-- end of table -->"


def table() -> str:
    """The APIs that we serve, in the order of their keys."""
    lines = ["| key | API | versions | flexible from | served by |", "|---|---|---|---|---|"]
    for key, api in sorted(APIS.items()):
        versions = f"{api.first}-{api.last}" if api.first != api.last else str(api.first)
        if api.advertised_first != api.first:
            versions += f" (offered from {api.advertised_first})"
        flexible = request_class(key).FLEXIBLE_SINCE
        since = "never" if flexible > api.last else str(flexible)
        lines.append(f"| {key} | {api.name} | {versions} | {since} | `api/{module_name(key)}.py` |")
    return "\n".join(lines)


def with_table(document: str) -> str:
    """The document with its table made anew."""
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    """Write the table, or compare it."""
    document = DOCUMENT.read_text()
    wanted = with_table(document)
    if "--check" in sys.argv:
        return 0 if document == wanted else 1
    DOCUMENT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
