"""Addresses as people write them."""

import pytest

from oncelog.client.addresses import parse_address, parse_bootstrap
from oncelog.client.errors import BadAddress


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:9", [("::1", 9)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_a_bootstrap_list_is_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text", ["", ",", "a:", "a:b", ":1", "a:65536", "a:-1", "[::1", "[::1]9", "http://a:1", "a b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_bootstrap(text)


def test_a_port_may_be_demanded() -> None:
    with pytest.raises(BadAddress, match="no port"):
        parse_address("localhost", default_port=None)
