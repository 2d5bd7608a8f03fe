"""What a client needs to know to reach a cluster, and how people write it.

Settings have the names that Kafka's Java clients gave them, and librdkafka's beside them. Those of
security are all honoured or refused, never dropped; those that tune consumers and producers mean
nothing here and are let through.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from oncelog.client.addresses import parse_bootstrap
from oncelog.client.errors import BadSettings
from oncelog.client.jaas import parse_jaas
from oncelog.client.security import TLS_VERSIONS, Credentials, Mechanism, Pem, Security, Tls

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where a cluster is and how to speak to it; it can travel to other processes."""

    bootstrap_servers: str
    client_id: str = "oncelog"
    #: How long one call may take, its retries included.
    timeout_s: float = 30.0
    security: Security = field(default_factory=Security)


@dataclass(frozen=True, slots=True)
class _Protocol:
    uses_tls: bool
    uses_sasl: bool


_PROTOCOLS: Final[Mapping[str, _Protocol]] = {
    "PLAINTEXT": _Protocol(uses_tls=False, uses_sasl=False),
    "SSL": _Protocol(uses_tls=True, uses_sasl=False),
    "SASL_PLAINTEXT": _Protocol(uses_tls=False, uses_sasl=True),
    "SASL_SSL": _Protocol(uses_tls=True, uses_sasl=True),
}
_MECHANISMS: Final[Mapping[str, Mechanism]] = {each.value: each for each in Mechanism}
_HOST_NAME_CHECKS: Final = {"HTTPS": True, "": False, "NONE": False}

_SASL: Final = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password"}
)
_TLS: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
_KNOWN: Final = _SASL | _TLS | {"bootstrap.servers", "client.id", "security.protocol"}
_OF_SECURITY: Final = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.")

#: What makes PEM of a Java store; a store of keys is always PKCS12 on the way.
_TO_PEM: Final[Mapping[str, str]] = {
    "ssl.truststore": "`keytool -exportcert -rfc -keystore STORE -alias ALIAS -file ca.pem`",
    "ssl.keystore": "`keytool -importkeystore -srckeystore STORE -destkeystore client.p12 "
    "-deststoretype PKCS12` and `openssl pkcs12 -in client.p12 -out client.pem`",
}

#: How alike two names are when one is taken for a misspelling of the other.
_ALIKE: Final = 0.9
_LONGEST_MS: Final = 2**31 - 1


def parse_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read settings as they are given to Kafka clients, without a prefix before the names."""
    _refuse_unknown(options)
    servers = _one_of(options, "bootstrap.servers")
    if servers is None:
        raise BadSettings("bootstrap.servers is missing: say where the brokers are, HOST:PORT.")
    parse_bootstrap(servers)
    defaults = ClientSettings(bootstrap_servers=servers)
    return ClientSettings(
        bootstrap_servers=servers,
        client_id=options.get("client.id", defaults.client_id),
        timeout_s=_timeout_s(options, defaults.timeout_s),
        security=_security(options),
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name in sorted(options.keys() - _KNOWN):
        if name in ("ssl.truststore.password", "ssl.keystore.password"):
            store = name.rpartition(".")[0]
            raise BadSettings(f"{name} belongs to a Java store. {_how_to_make_pem(store)}")
        if name.startswith(_OF_SECURITY):
            raise BadSettings(
                f"The setting {name} is not supported, and is not left out in silence since it is "
                f"about security: remove it. Supported are {', '.join(sorted(_SASL | _TLS))}."
            )
        for meant in difflib.get_close_matches(name, _KNOWN, n=1, cutoff=_ALIKE):
            raise BadSettings(f"There is no setting {name}: {meant} may be meant.")


def _timeout_s(options: Mapping[str, str], default_s: float) -> float:
    for name in ("default.api.timeout.ms", "request.timeout.ms"):
        text = options.get(name, "").strip()
        if text:
            if not (text.isascii() and text.isdigit() and 0 < int(text) <= _LONGEST_MS):
                raise BadSettings(f"{name} is {text!r}: write a whole number of milliseconds.")
            return int(text) / 1000
    return default_s


# --- security ---------------------------------------------------------------------------------


def _security(options: Mapping[str, str]) -> Security:
    name = "security.protocol"
    protocol = _chosen(name, options.get(name, "PLAINTEXT"), _PROTOCOLS)
    if not protocol.uses_tls:
        _refuse_without(options, _TLS, "SSL or SASL_SSL")
    if not protocol.uses_sasl:
        _refuse_without(options, _SASL, "SASL_SSL or SASL_PLAINTEXT")
    return Security(
        tls=_tls(options) if protocol.uses_tls else None,
        credentials=_credentials(options) if protocol.uses_sasl else None,
    )


def _refuse_without(options: Mapping[str, str], names: frozenset[str], protocols: str) -> None:
    given = sorted(names & options.keys())
    if given:
        protocol = options.get("security.protocol", "PLAINTEXT")
        raise BadSettings(
            f"{', '.join(given)} would do nothing with security.protocol={protocol}: set "
            f"security.protocol to {protocols}, or remove the setting."
        )


def _credentials(options: Mapping[str, str]) -> Credentials:
    text = _one_of(options, "sasl.mechanism", "sasl.mechanisms")
    if text is None:
        raise BadSettings(
            f"sasl.mechanism is missing: say how to log in, with {', '.join(_MECHANISMS)}."
        )
    mechanism = _chosen("sasl.mechanism", text, _MECHANISMS)
    if "sasl.jaas.config" in options:
        if options.keys() & {"sasl.username", "sasl.password"}:
            raise BadSettings(
                "Both sasl.jaas.config and sasl.username or sasl.password are given: keep one."
            )
        username, password = parse_jaas(options["sasl.jaas.config"])
    elif "sasl.username" in options and "sasl.password" in options:
        username, password = options["sasl.username"], options["sasl.password"]
    else:
        raise BadSettings(
            "The user is missing: set sasl.username and sasl.password, or sasl.jaas.config."
        )
    if not username or "\0" in username + password:
        raise BadSettings("The user name is empty, or it or the password has a NUL in it.")
    return Credentials(mechanism=mechanism, username=username, password=password)


def _tls(options: Mapping[str, str]) -> Tls:
    chain = _pem(
        options,
        "ssl.certificate.location",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
    )
    key = _pem(options, "ssl.key.location", "ssl.keystore.key")
    if key is not None and chain is None:
        raise BadSettings(f"{key.setting} is given without the certificate that it belongs to.")
    check = "ssl.endpoint.identification.algorithm"
    return Tls(
        authorities=_pem(
            options, "ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates"
        ),
        chain=chain,
        key=key,
        key_password=options.get("ssl.key.password"),
        checks_host_name=_chosen(check, options.get(check, "https"), _HOST_NAME_CHECKS),
        versions=_versions(options),
    )


def _pem(options: Mapping[str, str], *names: str) -> Pem | None:
    """The one of these settings that is given, if any."""
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise BadSettings(f"{' and '.join(given)} say the same thing twice: keep one.")
    for name in given:
        store = next((s for s in ("ssl.truststore", "ssl.keystore") if name.startswith(s)), None)
        # Java's own default is JKS.
        if store and options.get(f"{store}.type", "JKS").strip().upper() != "PEM":
            raise BadSettings(f"{name} belongs to a Java store. {_how_to_make_pem(store)}")
        value = options[name].strip()
        if not value:
            raise BadSettings(f"{name} is empty: give it a value or remove it.")
        if name.endswith(".location"):
            return Pem(setting=name, path=value)
        return Pem(setting=name, text=value)
    return None


def _how_to_make_pem(store: str) -> str:
    return (
        f"Stores in JKS or PKCS12 cannot be read here: make PEM of it with {_TO_PEM[store]}, set "
        f"{store}.type to PEM and {store}.location to that file, and remove {store}.password."
    )


def _versions(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("ssl.enabled.protocols", ",".join(TLS_VERSIONS))
    named = {part.strip().upper() for part in text.split(",")}
    # Older ones in the list are never spoken, which is the safe side.
    found = tuple(version for version in TLS_VERSIONS if version.upper() in named)
    if not found:
        raise BadSettings(f"ssl.enabled.protocols names none of {', '.join(TLS_VERSIONS)}.")
    return found


# --- reading ----------------------------------------------------------------------------------


def _one_of(options: Mapping[str, str], *names: str) -> str | None:
    """The value of a setting that has several names; none of them may say something else."""
    found = {name: options[name].strip() for name in names if name in options}
    if len(set(found.values())) > 1:
        raise BadSettings(f"{' and '.join(found)} do not say the same: keep one.")
    return next(iter(found.values()), None)


def _chosen(name: str, text: str, choices: Mapping[str, T]) -> T:
    chosen = choices.get(text.strip().upper())
    if chosen is None:
        valid = ", ".join(choice for choice in choices if choice)
        raise BadSettings(f"{name} is {text.strip()!r}, which is not supported: use {valid}.")
    return chosen
