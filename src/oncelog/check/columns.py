"""Integers by integer key, where most keys come in runs: offsets, and values from a counter.

A dict spends about a hundred bytes on each pair. Here 256 neighbouring keys share one small array,
so ten million dense keys take some fifty megabytes, and walking them in order needs no sort but
that of the pages. Scattered keys work too, only not as cheaply.
"""

from array import array
from collections.abc import Iterator
from typing import Final

PAGE_BITS: Final = 8
PAGE_SIZE: Final = 1 << PAGE_BITS
PAGE_MASK: Final = PAGE_SIZE - 1

_EMPTY_PAGE: Final = array("i", bytes(4 * PAGE_SIZE))


class PagedInts:
    """A map from int to a positive 32-bit int; an absent key reads as 0."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def get(self, key: int) -> int:
        """The item, or 0."""
        page = self._pages.get(key >> PAGE_BITS)
        return 0 if page is None else page[key & PAGE_MASK]

    def set(self, key: int, item: int) -> None:
        """Put an item in place of what is there."""
        page = self._pages.get(key >> PAGE_BITS)
        if page is None:
            page = self._pages[key >> PAGE_BITS] = _EMPTY_PAGE[:]
        page[key & PAGE_MASK] = item

    def keys_between(self, after: int, before: int) -> Iterator[int]:
        """The keys present with after < key < before, in order."""
        first, last = (after + 1) >> PAGE_BITS, (before - 1) >> PAGE_BITS
        numbers: list[int] | range = range(first, last + 1)
        if len(numbers) > len(self._pages):  # a gap wider than all we hold: walk what we hold
            numbers = sorted(number for number in self._pages if first <= number <= last)
        for number in numbers:
            page = self._pages.get(number)
            if page is None:
                continue
            start = number << PAGE_BITS
            for key in range(max(start, after + 1), min(start + PAGE_SIZE, before)):
                if page[key & PAGE_MASK]:
                    yield key

    def items(self) -> Iterator[tuple[int, int]]:
        """The keys present, in order, and their items."""
        for number in sorted(self._pages):
            start = number << PAGE_BITS
            for index, item in enumerate(self._pages[number]):
                if item:
                    yield start + index, item
