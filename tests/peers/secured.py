"""An Apache Kafka with TLS and users, for tests of whatever connects through our client's settings.

    with secured_kafka() as kafka:
        parse_settings(kafka.options("SASL_SSL", "SCRAM-SHA-256"))

Its listeners: `SSL`; `MUTUAL_SSL`, which wants a certificate of the client; `SASL_SSL` and
`SASL_PLAINTEXT`, which take the same user with each mechanism; and `SHORT_SESSION`, SASL without TLS
where a login holds for moments. The plain listener is there as ever. Nobody is denied anything.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.peers.certificates import Authority, Issued, make_authority
from tests.peers.kafka import HOST, Kafka, running_kafka

USERNAME: Final = "alice"
PASSWORD: Final = "a secret=word"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: How long a login holds on the listener SHORT_SESSION; Kafka takes no second one within a second.
SESSION_MS: Final = 1500

LISTENERS: Final = {
    "SSL": "SSL",
    "MUTUAL_SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SHORT_SESSION": "SASL_PLAINTEXT",
}

_MODULES: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """A broker that runs, and everything that a client needs to be let in."""

    kafka: Kafka
    authority: Authority
    #: Vouches for nobody here.
    stranger: Authority
    client: Issued

    def options(self, listener: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Settings for a listener in librdkafka's words, the address included."""
        options = {
            "bootstrap.servers": self.kafka.address(listener),
            "security.protocol": LISTENERS[listener],
        }
        if LISTENERS[listener].startswith("SASL"):
            options["sasl.mechanism"] = mechanism
            options["sasl.username"] = USERNAME
            options["sasl.password"] = PASSWORD
        if LISTENERS[listener].endswith("SSL"):
            options["ssl.ca.location"] = str(self.authority.certificate)
        if listener == "MUTUAL_SSL":
            options["ssl.certificate.location"] = str(self.client.certificate)
            options["ssl.key.location"] = str(self.client.key)
        return options

    def java_options(self, listener: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """The same in the words of Java's clients, such as Spark's own source has."""
        options = {
            "bootstrap.servers": self.kafka.address(listener),
            "security.protocol": LISTENERS[listener],
        }
        if LISTENERS[listener].startswith("SASL"):
            user = f'username="{USERNAME}" password="{PASSWORD}"'
            options["sasl.mechanism"] = mechanism
            options["sasl.jaas.config"] = f"{_module(mechanism)} required {user};"
        if LISTENERS[listener].endswith("SSL"):
            options["ssl.truststore.type"] = "PEM"
            options["ssl.truststore.location"] = str(self.authority.certificate)
        if listener == "MUTUAL_SSL":
            options["ssl.keystore.type"] = "PEM"
            options["ssl.keystore.location"] = str(self.client.both())
        return options


@contextmanager
def secured_kafka() -> Iterator[SecuredKafka]:
    """Make certificates, start Kafka with them, and stop it again; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="oncelog-certificates-") as name:
        directory = Path(name)
        authority = make_authority(directory, "authority")
        broker = authority.issue("broker", hosts=[HOST, "localhost"])
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(broker.both()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual_ssl.ssl.client.auth": "required",
            "listener.name.short_session.connections.max.reauth.ms": str(SESSION_MS),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **_logins(),
        }
        users = [f"{each}=[name={USERNAME},password={PASSWORD}]" for each in MECHANISMS[1:]]
        format_arguments = [text for user in users for text in ("--add-scram", user)]
        with running_kafka(
            settings, listeners=LISTENERS, format_arguments=format_arguments
        ) as kafka:
            yield SecuredKafka(
                kafka=kafka,
                authority=authority,
                stranger=make_authority(directory, "stranger"),
                client=authority.issue("client"),
            )


def _logins() -> dict[str, str]:
    return {
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": (
            f"{_module(mechanism)} required"
            + (f' user_{USERNAME}="{PASSWORD}";' if mechanism == "PLAIN" else ";")
        )
        for listener, protocol in LISTENERS.items()
        if protocol.startswith("SASL")
        for mechanism in MECHANISMS
    }


def _module(mechanism: str) -> str:
    return (
        f"{_MODULES}.plain.PlainLoginModule"
        if mechanism == "PLAIN"
        else (f"{_MODULES}.scram.ScramLoginModule")
    )
