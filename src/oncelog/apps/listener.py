"""What a listener is, and what it has done so far."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.apps.errors import Misconfigured
from oncelog.apps.record import Record
from oncelog.core.delivery import Delivery

Handler = Callable[[Record], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A function that is called with every record of some topics."""

    topics: tuple[str, ...]
    group: str
    handler: Handler
    delivery: Delivery = Delivery.EXACTLY_ONCE
    workers: int = 1
    max_records: int = 500
    max_seconds: float = 1.0
    tries: int = 5
    dead_letters: str | None = None
    start: str = "earliest"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics) or not self.group:
            raise Misconfigured(
                f'{self.name} has no topic or no group: @app.listener("orders", group="billing").'
            )
        for name in ("workers", "max_records", "tries"):
            if getattr(self, name) < 1:
                raise Misconfigured(f"{self.name} has {name}={getattr(self, name)}: at least 1.")
        if not 0 < self.max_seconds < 1e6:
            raise Misconfigured(f"{self.name} has max_seconds={self.max_seconds}: a span above 0.")
        if self.start not in ("earliest", "latest"):
            raise Misconfigured(f"{self.name} has start={self.start!r}: earliest or latest.")
        if self.dead_letters in self.topics:
            raise Misconfigured(f"{self.name} would read its own dead letters: name another topic.")

    @property
    def name(self) -> str:
        """What it is called in sentences and log lines."""
        return f"The listener {self.handler.__name__}"

    @property
    def is_async(self) -> bool:
        """Whether its handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)


@dataclass(slots=True, kw_only=True)
class Counts:
    """What has been done since the start; each worker counts for itself."""

    #: Handled, and committed if there is anything to commit.
    records: int = 0
    transactions: int = 0
    aborts: int = 0
    dead_letters: int = 0
    #: Records that wait, as far as is known.
    lag: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            records=self.records + other.records,
            transactions=self.transactions + other.transactions,
            aborts=self.aborts + other.aborts,
            dead_letters=self.dead_letters + other.dead_letters,
            lag=self.lag + other.lag,
        )
