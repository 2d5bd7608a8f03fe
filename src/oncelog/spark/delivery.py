"""How often a row may arrive: the one choice that decides what a write costs."""

from enum import StrEnum

from oncelog.spark.errors import BadConfiguration


class Delivery(StrEnum):
    """What a reader of committed records sees of a row, whatever fails."""

    #: Once or not at all: progress first, then one try without acknowledgement by all replicas.
    AT_MOST_ONCE = "at_most_once"
    #: Once or more: write, then note the progress. Rows are visible at once.
    AT_LEAST_ONCE = "at_least_once"
    #: Once: rows and progress in one transaction.
    EXACTLY_ONCE = "exactly_once"


def delivery_of(name: str | Delivery) -> Delivery:
    """A delivery by its name."""
    try:
        return Delivery(name)
    except ValueError:
        names = ", ".join(Delivery)
        raise BadConfiguration(f"delivery={name!r} is not known: choose one of {names}.") from None
