"""SCRAM (RFC 5802, RFC 7677): a password is proven by both sides and shown by neither.

    client   n,,n=USER,r=NONCE
    server   r=NONCE+ITS NONCE,s=SALT,i=ITERATIONS
    client   c=biws,r=BOTH NONCES,p=PROOF
    server   v=SIGNATURE

A conversation is a generator: it yields what to send and is sent what came back, and it ends when
the server has proven itself. Names and passwords are taken as they are, in UTF-8 and without
SASLprep: Kafka stores them so, and a normal form would be another password to it.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator
from typing import Final

from oncelog.client.errors import AuthenticationFailed

Conversation = Generator[bytes, bytes, None]

#: Fewer would make stolen messages cheap to guess from (RFC 7677); Kafka allows no fewer either.
MIN_ITERATIONS: Final = 4096
#: More would let a server keep us busy: this many take about a second.
MAX_ITERATIONS: Final = 1_000_000

_NO_BINDING: Final = "n,,"
_NO_BINDING_BASE64: Final = base64.b64encode(_NO_BINDING.encode()).decode()


def scram(hash_name: str, username: str, password: str, *, nonce: str) -> Conversation:
    """Log in with a nonce that is fresh, printable and without commas."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = _text((yield f"{_NO_BINDING}{client_first}".encode()))

    both, salt, iterations = _challenge(server_first, nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_final = f"c={_NO_BINDING_BASE64},r={both}"
    message = f"{client_first},{server_first},{client_final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    mask = hmac.digest(stored_key, message, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
    proof_base64 = base64.b64encode(proof).decode()
    server_final = _text((yield f"{client_final},p={proof_base64}".encode()))

    server_key = hmac.digest(salted, b"Server Key", hash_name)
    signature = hmac.digest(server_key, message, hash_name)
    if not hmac.compare_digest(signature, _signature(server_final)):
        raise AuthenticationFailed(
            "The broker could not prove that it knows the password: it may be an impostor."
        )


def _challenge(server_first: str, nonce: str) -> tuple[str, bytes, int]:
    fields = _fields(server_first, "r", "s", "i")
    both, count = fields["r"], fields["i"]
    if not both.startswith(nonce) or len(both) == len(nonce):
        raise AuthenticationFailed("The broker answered with a nonce that is not ours and its own.")
    # Longer numbers are out of bounds whatever they are, and slow to read.
    iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 9 else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"The broker asks for {count[:20]} rounds of SCRAM; {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS} are safe. Set the user's password again with such a number."
        )
    salt = _bytes(fields["s"])
    if not salt:
        raise AuthenticationFailed("The broker sent no salt.")
    return both, salt, iterations


def _signature(server_final: str) -> bytes:
    if server_final.startswith("e="):
        raise AuthenticationFailed(f"The broker refused the password: {server_final[2:]}.")
    return _bytes(_fields(server_final, "v")["v"])


def _fields(message: str, *names: str) -> dict[str, str]:
    """The first fields of a message, which come in a fixed order; what follows is optional."""
    parts = [part.partition("=") for part in message.split(",")]
    if tuple(name for name, _, _ in parts[: len(names)]) != names:
        raise AuthenticationFailed(
            f"The broker's message is not SCRAM's: it lacks {', '.join(names)}."
        )
    return {name: value for name, _, value in parts[: len(names)]}


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("The broker's message is not SCRAM's: it is no text.") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("The broker's message is not SCRAM's: bad base64.") from None
