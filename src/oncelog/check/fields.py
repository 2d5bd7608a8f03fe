"""Reading one field of a line of JSON: what it must be, and a sentence if it is not.

A history comes from outside, so nothing in it is believed: neither types nor sizes.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final, TypeVar

INT32: Final = 1 << 31
INT64: Final = 1 << 63

T = TypeVar("T")
Reader = Callable[[object, str], T]


class Wrong(Exception):
    """What is wrong with a line; the caller knows which line it is."""


def integer(found: object, name: str) -> int:
    """A whole number of 64 bits."""
    if type(found) is not int:  # True is an int to isinstance
        raise Wrong(f"{name} is not an integer: {found!r:.100}")
    if not -INT64 <= found < INT64:
        raise Wrong(f"{name} does not fit into 64 bits: {found!r:.100}")
    return found


def process_number(found: object, name: str) -> int:
    """A whole number of 32 bits."""
    process = integer(found, name)
    if not -INT32 <= process < INT32:
        raise Wrong(f"{name} does not fit into 32 bits: {process}")
    return process


def offset(found: object, name: str = "offset") -> int:
    """A place in a partition."""
    at = integer(found, name)
    if at < 0:
        raise Wrong(f"negative {name} {at}")
    return at


def number(found: object, name: str) -> float:
    """A finite number that is not negative."""
    if type(found) is not int and type(found) is not float:
        raise Wrong(f"{name} is not a number: {found!r:.100}")
    if not (0 <= found < INT64 and isfinite(found)):
        raise Wrong(f"{name} is negative or too large: {found!r:.100}")
    return float(found)


def string(found: object, name: str) -> str:
    """A text."""
    if type(found) is not str:
        raise Wrong(f"{name} is not a string: {found!r:.100}")
    return found


def boolean(found: object, name: str) -> bool:
    """True or false, and not 0 or 1."""
    if type(found) is not bool:
        raise Wrong(f"{name} is not true or false: {found!r:.100}")
    return found


def pair(found: object, name: str) -> tuple[int, int]:
    """Two whole numbers."""
    if type(found) is not list or len(found) != 2:
        raise Wrong(f"{name} is not a pair of integers: {found!r:.100}")
    return integer(found[0], name), integer(found[1], name)


def one_of(*words: str) -> Reader[str]:
    """Exactly one of these words."""

    def read(found: object, name: str) -> str:
        if type(found) is not str or found not in words:
            raise Wrong(f"{name} is not {' or '.join(words)}: {found!r:.100}")
        return found

    return read


def list_of(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """A list of things of one kind."""

    def read_all(found: object, name: str) -> tuple[T, ...]:
        if type(found) is not list:
            raise Wrong(f"{name} is not a list: {found!r:.100}")
        return tuple(read(item, name) for item in found)

    return read_all


def by_name(read: Reader[T]) -> Reader[Mapping[str, T]]:
    """An object whose keys are names of partitions, groups or pipelines."""

    def read_all(found: object, name: str) -> Mapping[str, T]:
        if type(found) is not dict:
            raise Wrong(f"{name} is not an object by name: {found!r:.100}")
        return {key: read(item, name) for key, item in found.items()}

    return read_all


def or_none(read: Reader[T]) -> Reader[T | None]:
    """The same, or null."""
    return lambda found, name: None if found is None else read(found, name)
