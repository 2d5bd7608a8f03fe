"""How often a record may count: the one choice that decides what a listener or a sink costs."""

from enum import StrEnum


class Delivery(StrEnum):
    """How often a record counts for a reader of committed records, whatever fails."""

    #: Never twice: progress is noted first, then the record is handled or written, once.
    AT_MOST_ONCE = "at_most_once"
    #: Never lost: it is handled or written and acknowledged, then progress is noted.
    AT_LEAST_ONCE = "at_least_once"
    #: Once: progress and all that was sent are one transaction.
    EXACTLY_ONCE = "exactly_once"


def delivery_of(name: str | Delivery) -> Delivery:
    """A delivery by its name; a ValueError says which there are."""
    try:
        return Delivery(name)
    except ValueError:
        names = ", ".join(Delivery)
        raise ValueError(f"delivery={name!r} is not known: choose one of {names}.") from None
