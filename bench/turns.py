"""Who is measured when: both in every round, the order changing, after rounds that do not count.

The machine's moods (a busy neighbour, a full page cache) then meet both alike, and Kafka's compiler
has seen the code before it counts.
"""

from collections.abc import Callable, Iterator

from bench.rows import Kind, Scale
from bench.servers import Contender
from bench.table import Result


def measure(
    kind: Kind,
    pair: tuple[Contender, Contender],
    scale: Scale,
    *,
    mode: str,
    wait: Callable[[], None],
    say: Callable[[str], None],
) -> Iterator[Result]:
    """All rounds of one kind; a result for each of its rows."""
    values: dict[str, list[list[float]]] = {contender.name: [] for contender in pair}
    warm_up, rounds = kind.rounds(scale)
    for number in range(warm_up + rounds):
        for contender in pair if number % 2 == 0 else reversed(pair):
            wait()
            measured = list(kind.measure(contender, scale))
            counts = number >= warm_up
            if counts:
                values[contender.name].append(measured)
            say(_progress(kind, contender, mode, measured, counts=counts))
    ours, theirs = (values[contender.name] for contender in pair)
    for index, row in enumerate(kind.rows):
        yield Result(
            row=row,
            mode=mode,
            ours=[measured[index] for measured in ours],
            kafkas=[measured[index] for measured in theirs],
        )


def _progress(
    kind: Kind, contender: Contender, mode: str, measured: list[float], *, counts: bool
) -> str:
    shown = ", ".join(
        f"{row.name} {value:.3g} {row.unit}" for row, value in zip(kind.rows, measured, strict=True)
    )
    return f"  {mode:4} {contender.name:7} {shown}{'' if counts else ' (warm-up)'}"
