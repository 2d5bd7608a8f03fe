"""What commands print: aligned tables for people, JSON for programs."""

import json
from collections.abc import Iterable, Sequence

Cell = str | int | None


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Columns two blanks apart, numbers to the right; what there is not is a dash."""
    lines = [tuple(header), *(tuple(_text(cell) for cell in row) for row in rows)]
    is_number = [_are_numbers([line[c] for line in lines[1:]]) for c in range(len(header))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(cell: Cell) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def _are_numbers(column: Sequence[str]) -> bool:
    given = [cell for cell in column if cell != "-"]
    return bool(given) and all(cell.removeprefix("-").isdigit() for cell in given)


def as_json(value: object) -> str:
    """One value as JSON, spread over lines for the eye."""
    return json.dumps(value, indent=2, ensure_ascii=False)
