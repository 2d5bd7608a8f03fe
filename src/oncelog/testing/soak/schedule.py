"""Who is killed when: drawn from the seed before the run begins."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

Target: TypeAlias = Literal["broker", "client"]

#: The broker is left alone in the last part of a run: its last life is long, so that growth shows.
BROKER_SHARE: Final = 0.5
#: How long the broker stays away, at most.
AWAY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A SIGKILL, and how long it is until the restart."""

    at_s: float
    target: Target
    away_s: float
    #: Which of the clients, counted anew from the start when there are fewer.
    number: int


def kills(seed: int, *, duration_s: float, every_s: float) -> Iterator[Kill]:
    """Every half to one and a half `every_s`; the broker and clients in turn, as long as it takes."""
    rng = Random(f"{seed} kills")
    at_s = 0.0
    is_broker = True
    while (at_s := at_s + every_s * rng.uniform(0.5, 1.5)) < duration_s:
        target: Target = "client"
        if is_broker and at_s < BROKER_SHARE * duration_s:
            target = "broker"
        is_broker = not is_broker
        yield Kill(
            at_s=at_s, target=target, away_s=rng.uniform(0, AWAY_S), number=rng.randrange(1 << 16)
        )
