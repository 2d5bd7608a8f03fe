"""How often a record may count: the one choice that decides what a listener costs."""

from enum import StrEnum

from oncelog.apps.errors import Misconfigured


class Delivery(StrEnum):
    """How often a record counts, whatever fails."""

    #: Never twice: its offset is committed first, then it is handled, once.
    AT_MOST_ONCE = "at_most_once"
    #: Never lost: it is handled, what was sent is acknowledged, then its offset is committed.
    AT_LEAST_ONCE = "at_least_once"
    #: Once: its offset and what was sent are one transaction.
    EXACTLY_ONCE = "exactly_once"


def delivery_of(name: str | Delivery) -> Delivery:
    """A delivery by its name."""
    try:
        return Delivery(name)
    except ValueError:
        names = ", ".join(Delivery)
        raise Misconfigured(f"delivery={name!r} is not known: choose one of {names}.") from None
