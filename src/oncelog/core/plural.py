"""Numbers of things, as a person reads them."""


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 partition`, `2,000 partitions`; `nouns` where an s does not make it many."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
