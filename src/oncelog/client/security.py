"""How a connection is secured: TLS, a user's credentials, both or neither.

These are plain values that travel to other machines with the settings they belong to. A file that
they name is read where a connection is made, not before. No secret shows in a `repr`.
"""

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from oncelog.client.errors import BadSettings

#: The versions of TLS that are spoken; older ones are not safe any more.
TLS_VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class Mechanism(StrEnum):
    """How a user proves who they are."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and their password, for SASL."""

    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """Certificates or a key: a file, or the text itself."""

    #: The setting that brought it, so that an error can name it.
    setting: str
    path: str = ""
    text: str = field(default="", repr=False)

    def read(self) -> str:
        """The text, without what is not ASCII: only comments have such letters."""
        if not self.path:
            return self.text
        try:
            return Path(self.path).read_text("ascii", errors="ignore")
        except OSError as error:
            raise BadSettings(
                f"{self.setting}: {self.path} cannot be read here ({error.strerror}). The file is "
                "read on every machine that connects, so each one needs it in the same place."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Whom to trust, and what to show when the broker asks who we are."""

    #: Who may vouch for the broker; none means those whom the operating system trusts.
    authorities: Pem | None = None
    #: Our own certificate and those between it and its authority.
    chain: Pem | None = None
    #: The key of our certificate, unless it is with the chain.
    key: Pem | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True
    versions: tuple[str, ...] = tuple(TLS_VERSIONS)

    def context(self) -> ssl.SSLContext:
        """Everything that these settings say, as Python's TLS wants it; this reads the files."""
        context = self._trusting()
        context.check_hostname = self.checks_host_name
        context.minimum_version = TLS_VERSIONS[min(self.versions)]
        context.maximum_version = TLS_VERSIONS[max(self.versions)]
        if self.chain is not None:
            self._show(context, self.chain)
        return context

    def _trusting(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates are always checked
        if self.authorities is None:
            context.load_default_certs()
            return context
        text = self.authorities.read()
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            raise BadSettings(
                f"{self.authorities.setting} holds no certificate that can be read: it takes PEM, "
                "which begins with -----BEGIN CERTIFICATE----- on a line of its own."
            ) from error
        return context

    def _show(self, context: ssl.SSLContext, chain: Pem) -> None:
        key = self.key or chain
        try:
            with _as_file(chain) as chain_path, _as_file(key) as key_path:
                context.load_cert_chain(chain_path, key_path, password=self._unlock)
        except ssl.SSLError as error:
            names = " and ".join(dict.fromkeys((chain.setting, key.setting)))
            raise BadSettings(
                f"{names} cannot be used ({error.reason or 'wrong password'}): they take a "
                "certificate and its key in PEM, and ssl.key.password where the key is encrypted."
            ) from error

    def _unlock(self) -> str:
        # Without a function to ask, OpenSSL would ask at the terminal.
        if self.key_password is None:
            raise BadSettings("The key of the certificate is encrypted: give ssl.key.password.")
        return self.key_password


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a connection does before its first request; by default nothing."""

    tls: Tls | None = None
    credentials: Credentials | None = None


@contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    # Python's TLS takes a certificate with its key from files alone.
    text = pem.read()
    if pem.path:
        yield pem.path
        return
    with tempfile.NamedTemporaryFile("w", prefix="oncelog-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name
