"""One transactional id of a pool, and whichever producer has it now."""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from oncelog.apps.clients import Clients
from oncelog.apps.errors import Aborted, AppError, Fenced
from oncelog.apps.failure import error_of, fatal_error, said
from oncelog.apps.producer import TransactionalProducer

_TRIES: Final = 2


class Slot:
    """Whoever has leased it has its producer alone."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        *,
        number: int,
        wait_s: float,
        on_fenced: Callable[[Fenced], None],
    ) -> None:
        """Nothing is sent before `open`; `on_fenced` hears that the id was taken over."""
        self.clients = clients
        self.name = name
        self.number = number
        self.wait_s = wait_s
        self._on_fenced = on_fenced
        self._producer: TransactionalProducer | None = None

    @property
    def who(self) -> str:
        """Who speaks, in a sentence."""
        return f"The producer {self.name}"

    @property
    def timeout_s(self) -> float:
        """How long a transaction may last."""
        return self.clients.transaction_timeout_s

    @property
    def is_spoilt(self) -> bool:
        """Whether the producer is of no use any more."""
        return self._producer is None

    def open(self) -> TransactionalProducer:
        """Take the id over with a new producer; what was open under it has ended then."""
        self.spoil()
        producer = TransactionalProducer(self.clients, self.name, wait_s=self.wait_s)
        producer.open()
        self._producer = producer
        return producer

    def begin(self) -> TransactionalProducer:
        """Begin a transaction, and answer the producer that has it."""
        for _ in range(_TRIES):
            producer = self._producer or self.open()
            try:
                producer.begin()
                return producer
            except KafkaException as raised:
                self.spoil()
                error = error_of(raised)
                if (fatal := self.fatal(error, "begin a transaction")) is not None:
                    raise fatal from raised
        raise Aborted(f"{self.who} cannot begin a transaction: {said(error)}.")

    def spoil(self) -> None:
        """Do without the producer: the next transaction gets a new one."""
        if self._producer is not None:
            self._producer.drop()
            self._producer = None

    def fatal(self, error: KafkaError, what: str) -> AppError | None:
        """The end of the app, if an error is one."""
        found = fatal_error(error, what, who=self.who)
        if isinstance(found, Fenced):
            self._on_fenced(found)
        return found
