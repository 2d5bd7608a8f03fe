"""`meta.properties`: whose data directory this is, and in which format.

The keys that Kafka has mean the same here; `oncelog.format` is ours. A directory of a newer format
is left alone.
"""

from dataclasses import dataclass
from typing import Final

FILE_NAME: Final = "meta.properties"
FORMAT: Final = 1


class WrongDirectory(Exception):
    """The directory belongs to somebody else, or to a newer release."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data directory."""

    cluster_id: str
    node_id: int


def encode_properties(properties: MetaProperties) -> bytes:
    """The file's text."""
    return (
        f"version=1\ncluster.id={properties.cluster_id}\nnode.id={properties.node_id}\n"
        f"oncelog.format={FORMAT}\n"
    ).encode()


def decode_properties(data: bytes) -> MetaProperties:
    """Read the file, or say why this directory is not ours to touch."""
    pairs = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            pairs[name.strip()] = value.strip()
    if "oncelog.format" not in pairs:
        raise WrongDirectory("it was made by another program (no oncelog.format in it)")
    try:
        found, node_id = int(pairs["oncelog.format"]), int(pairs["node.id"])
        cluster_id = pairs["cluster.id"]
    except (KeyError, ValueError) as error:
        raise WrongDirectory(f"its {FILE_NAME} is damaged: {error}") from error
    if found > FORMAT:
        raise WrongDirectory(
            f"it has format {found} and this release knows {FORMAT}; use a newer oncelog"
        )
    return MetaProperties(cluster_id, node_id)
