"""Tables for the eye."""

from oncelog.cli.output import table


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    text = table(("NAME", "COUNT", "NOTE"), [("a", 5, None), ("long", 1000, "x"), ("b", None, "")])

    assert text.splitlines() == [
        "NAME  COUNT  NOTE",
        "a         5  -",
        "long   1000  x",
        "b         -  -",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(("A", "B"), []) == "A  B"
