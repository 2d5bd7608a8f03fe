"""SCRAM against the conversations that its RFCs print, and against brokers that cheat."""

import pytest

from oncelog.client.errors import AuthenticationFailed
from oncelog.client.scram import MAX_ITERATIONS, Conversation, scram

#: RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={BOTH},s={SALT},i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def a_conversation(username: str = "user") -> Conversation:
    return scram("sha256", username, "pencil", nonce=NONCE)


def test_the_conversation_of_rfc_7677() -> None:
    conversation = a_conversation()

    assert next(conversation).decode() == f"n,,n=user,r={NONCE}"
    assert conversation.send(SERVER_FIRST.encode()).decode() == f"c=biws,r={BOTH},p={PROOF}"
    with pytest.raises(StopIteration):
        conversation.send(f"v={SIGNATURE}".encode())


def test_the_conversation_of_rfc_5802() -> None:
    conversation = scram("sha1", "user", "pencil", nonce="fyko+d2lbbFgONRv9qkxdawL")
    both = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"

    assert next(conversation) == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    final = conversation.send(f"r={both},s=QSXCR+Q6sek8bf92,i=4096".encode())
    assert final.decode() == f"c=biws,r={both},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    with pytest.raises(StopIteration):
        conversation.send(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_a_name_with_signs_of_the_message_is_escaped() -> None:
    assert next(a_conversation("a=b,c")).decode() == f"n,,n=a=3Db=2Cc,r={NONCE}"


def test_what_follows_the_fields_that_we_know_is_signed_and_otherwise_ignored() -> None:
    conversation = a_conversation()
    next(conversation)

    final = conversation.send(f"{SERVER_FIRST},x=later".encode())

    assert final.startswith(f"c=biws,r={BOTH},p=".encode())
    assert PROOF.encode() not in final


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "it lacks r, s, i"),
        (b"\xff", "no text"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "nonce"),
        (f"r=x{BOTH},s={SALT},i=4096".encode(), "nonce"),
        (f"r={BOTH},s=,i=4096".encode(), "no salt"),
        (f"r={BOTH},s=*,i=4096".encode(), "base64"),
        (f"r={BOTH},s=ä,i=4096".encode(), "base64"),
        (f"r={BOTH},s={SALT},i=4095".encode(), "asks for 4095 rounds"),
        (f"r={BOTH},s={SALT},i={MAX_ITERATIONS + 1}".encode(), "rounds"),
        (f"r={BOTH},s={SALT},i={'9' * 10_000}".encode(), "asks for 9{20} rounds"),
        (f"r={BOTH},s={SALT},i=-4096".encode(), "rounds"),
        (f"r={BOTH},s={SALT},i=²".encode(), "rounds"),
        (f"m=must,r={BOTH},s={SALT},i=4096".encode(), "it lacks"),
        (f"r={BOTH},i=4096,s={SALT}".encode(), "it lacks"),
    ],
)
def test_a_challenge_that_cannot_be_is_refused(message: bytes, problem: str) -> None:
    conversation = a_conversation()
    next(conversation)

    with pytest.raises(AuthenticationFailed, match=problem):
        conversation.send(message)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (f"v={PROOF}".encode(), "impostor"),
        (b"v=", "impostor"),
        (f"v={SIGNATURE[:-2]}".encode(), "base64"),
        (b"", "it lacks v"),
        (b"e=invalid-proof", "refused the password: invalid-proof"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_found_out(
    message: bytes, problem: str
) -> None:
    conversation = a_conversation()
    next(conversation)
    conversation.send(SERVER_FIRST.encode())

    with pytest.raises(AuthenticationFailed, match=problem):
        conversation.send(message)
