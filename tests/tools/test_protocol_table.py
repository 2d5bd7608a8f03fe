from oncelog.api.registry import APIS, handler
from tools.protocol_table import DOCUMENT, with_table


def test_the_documented_table_of_apis_is_the_registrys() -> None:
    document = DOCUMENT.read_text()

    assert with_table(document) == document, "run python tools/protocol_table.py"


def test_every_registered_api_has_a_handler() -> None:
    for key in APIS:
        assert callable(handler(key))
