"""Certificates for tests, made with OpenSSL when they are needed and valid for a day.

authority = make_authority(directory, "ours")
broker = authority.issue("broker", hosts=["127.0.0.1", "localhost"])
"""

import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path

    def both(self) -> Path:
        """One file with the key and the certificate, as Java takes it."""
        both = self.key.with_suffix(".both.pem")
        both.write_text(self.key.read_text() + self.certificate.read_text())
        return both

    def encrypted_key(self, password: str) -> Path:
        """The key under a password."""
        encrypted = self.key.with_suffix(".encrypted.pem")
        _openssl(
            *("pkcs8", "-topk8", "-in", str(self.key), "-out", str(encrypted)),
            *("-passout", f"pass:{password}"),
        )
        return encrypted


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Who vouches for certificates."""

    issued: Issued

    @property
    def certificate(self) -> Path:
        """What others trust."""
        return self.issued.certificate

    def issue(self, name: str, *, hosts: Sequence[str] = ()) -> Issued:
        """A certificate for a name, and for a broker's hosts."""
        usage = ["-addext", "basicConstraints=critical,CA:FALSE"]
        if hosts:
            usage += ["-addext", f"subjectAltName={','.join(map(_alternative, hosts))}"]
        signer = ["-CA", str(self.issued.certificate), "-CAkey", str(self.issued.key)]
        return _make(self.certificate.parent, name, *signer, *usage)


def make_authority(directory: Path, name: str) -> Authority:
    """A new authority; its files lie in the directory."""
    usage = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")
    extensions = [text for each in usage for text in ("-addext", each)]
    return Authority(issued=_make(directory, name, *extensions))


def _make(directory: Path, name: str, *arguments: str) -> Issued:
    made = Issued(certificate=directory / f"{name}.pem", key=directory / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"),
        *("-days", "1", "-subj", f"/CN={name}"),
        *("-keyout", str(made.key), "-out", str(made.certificate), *arguments),
    )
    return made


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _openssl(*arguments: str) -> None:
    subprocess.run(("openssl", *arguments), check=True, capture_output=True, timeout=30)
