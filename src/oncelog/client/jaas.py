"""A user name and a password out of `sasl.jaas.config`, as people write it for Java clients.

org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
"""

import re
from typing import Final

from oncelog.client.errors import BadSettings

#: The login modules that mean a user name and a password, by the last part of their name: some
#: vendors put the classes into a package of their own.
MODULES: Final = ("PlainLoginModule", "ScramLoginModule")

_TOKEN: Final = re.compile(
    r"""\s*(?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<symbol>[=;]) | (?P<word>[^\s=;"']+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "b": "\b"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

#: The errors below never quote what was given: a password is in it.
_FORM: Final = 'write it as MODULE required username="NAME" password="PASSWORD";'


def parse_jaas(text: str) -> tuple[str, str]:
    """The user name and the password."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise BadSettings(f"sasl.jaas.config cannot be read: {_FORM}")
    module = tokens[0].rpartition(".")[2]
    if module not in MODULES:
        raise BadSettings(
            f"sasl.jaas.config names the login module {module}, which is not supported: "
            f"use {' or '.join(MODULES)}."
        )
    options = _options(tokens[2:-1])
    if options.get("tokenauth", "false").lower() != "false":
        raise BadSettings(
            "sasl.jaas.config asks for a delegation token (tokenauth), which is not supported: "
            "use a user name and a password."
        )
    if "username" not in options or "password" not in options:
        raise BadSettings(f"sasl.jaas.config lacks the user name or the password: {_FORM}")
    return options["username"], options["password"]


def _tokens(text: str) -> list[str]:
    found, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadSettings(f"sasl.jaas.config has a quote without its end: {_FORM}")
        quoted = match["double"] if match["single"] is None else match["single"]
        if quoted is None:
            found.append(match["symbol"] or match["word"])
        else:
            found.append(_ESCAPE.sub(_unescaped, quoted))
        position = match.end()
    return found


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter.isdigit() else _CONTROLS.get(letter, letter)


def _options(tokens: list[str]) -> dict[str, str]:
    if len(tokens) % 3 or any(equals != "=" for equals in tokens[1::3]):
        raise BadSettings(f"sasl.jaas.config cannot be read: {_FORM}")
    return dict(zip(tokens[0::3], tokens[2::3], strict=True))
