"""Log lines of a broker: a fixed phrase and its fields, as text or as one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

LEVELS: Final = ("debug", "info", "warning", "error")


class TextLines(logging.Formatter):
    """`2026-01-31T08:00:00.123Z WARNING cut a torn tail partition=orders-0 size_bytes=17`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the fields contain; a traceback follows on lines of its own."""
        words = [_moment(record), record.levelname, record.getMessage()]
        words += (f"{name}={_plain(value)}" for name, value in _fields(record).items())
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """The same as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Our own four keys win over fields of the same name."""
        line = {
            **_fields(record),
            "at": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(*, form: str, level: str) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _plain(value: object) -> str:
    # A client chooses its own name: a line break in it must not begin a line of ours.
    text = str(value)
    is_word = text.isprintable() and text and not any(c in ' "=' for c in text)
    return text if is_word else json.dumps(text, ensure_ascii=not text.isprintable())
