"""Where brokers are: HOST:PORT, and lists of them."""

from typing import Final

from oncelog.client.errors import BadAddress

DEFAULT_PORT: Final = 9092

Address = tuple[str, int]


def parse_address(text: str, default_port: int | None = DEFAULT_PORT) -> Address:
    """`host:port`, `host`, `[::1]:port` or `[::1]`."""
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadAddress(f"{text!r} is not an address: write [ADDRESS]:PORT.")
        port = rest[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host or any(c.isspace() or c == "/" for c in host):
        raise BadAddress(f"{text!r} is not an address: write HOST:PORT.")
    if not port and default_port is not None and not text.strip().endswith(":"):
        return host, default_port
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise BadAddress(f"{text!r} has no port between 0 and 65535: write HOST:PORT.")
    return host, int(port)


def parse_bootstrap(text: str) -> list[Address]:
    """A list of addresses with commas between them; a missing port is 9092."""
    addresses = [parse_address(part) for part in text.split(",") if part.strip()]
    if not addresses:
        raise BadAddress("No broker is given: write HOST:PORT, or several with commas between.")
    return addresses
