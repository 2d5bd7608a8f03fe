"""Numbers of things, as a person reads them."""

from oncelog.core.plural import plural


def test_one_is_not_many() -> None:
    assert (plural(1, "member"), plural(0, "member")) == ("1 member", "0 members")


def test_some_words_have_a_plural_of_their_own() -> None:
    assert (plural(1, "batch", "batches"), plural(2, "batch", "batches")) == (
        "1 batch",
        "2 batches",
    )


def test_large_numbers_are_split() -> None:
    assert plural(12_345, "record") == "12,345 records"
