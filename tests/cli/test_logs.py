"""Log lines: one record, one line, whatever a client called itself."""

import json
import logging

from oncelog.cli.logs import JsonLines, TextLines


def a_record(message: str = "cut a torn tail", **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("oncelog", logging.WARNING, "f.py", 1, message, (), None)
    record.created = 1_700_000_000.123
    record.fields = fields
    return record


def test_a_line_of_text_is_time_level_phrase_and_fields() -> None:
    line = TextLines().format(a_record(partition="t-0", size_bytes=17))

    assert line == "2023-11-14T22:13:20.123Z WARNING cut a torn tail partition=t-0 size_bytes=17"


def test_a_field_cannot_begin_a_line_of_its_own() -> None:
    line = TextLines().format(a_record(client_id="x\n2023 ERROR all is lost", empty=""))

    assert line.endswith(r'client_id="x\n2023 ERROR all is lost" empty=""')
    assert "\n" not in line


def test_a_line_of_json_is_one_object() -> None:
    line = JsonLines().format(a_record(partition="t-0", level="mine"))

    assert json.loads(line) == {
        "at": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "logger": "oncelog",
        "message": "cut a torn tail",
        "partition": "t-0",
    }


def test_a_record_of_another_library_has_no_fields() -> None:
    record = logging.makeLogRecord(
        {"msg": "hello", "levelname": "WARNING", "created": 1_700_000_000.123}
    )

    assert TextLines().format(record) == "2023-11-14T22:13:20.123Z WARNING hello"
