"""Our codec and kafka-clients agree, byte for byte, on every version of every message."""

from pathlib import Path

import pytest

from oncelog.wire.codec import decode, encode
from oncelog.wire.messages.index import NAMES
from tests.wire.golden import DIRECTORY, all_goldens, built, goldens, plain
from tools.golden.write import write


@pytest.mark.parametrize("api_key", NAMES, ids=NAMES.values())
def test_what_kafka_wrote_we_read(api_key: int) -> None:
    for golden in goldens(api_key):
        message = decode(golden.cls, golden.version, golden.data)

        assert plain(message) == plain(built(golden.cls, golden.content)), str(golden)


@pytest.mark.parametrize("api_key", NAMES, ids=NAMES.values())
def test_what_we_write_is_what_kafka_wrote(api_key: int) -> None:
    for golden in goldens(api_key):
        message = built(golden.cls, golden.content)

        assert encode(message, golden.version).hex() == golden.data.hex(), str(golden)


@pytest.mark.parametrize("api_key", NAMES, ids=NAMES.values())
def test_what_we_read_we_write_back_unchanged(api_key: int) -> None:
    for golden in goldens(api_key):
        message = decode(golden.cls, golden.version, golden.data)

        assert encode(message, golden.version).hex() == golden.data.hex(), str(golden)


def test_every_version_that_we_declare_has_golden_bytes() -> None:
    written = {(golden.cls, golden.version) for golden in all_goldens()}

    assert written == {(golden.cls, v) for golden in all_goldens() for v in golden.cls.VERSIONS}


@pytest.mark.peers
def test_the_golden_bytes_are_what_kafka_writes_today(tmp_path: Path) -> None:
    write(tmp_path)

    for path in sorted(tmp_path.iterdir()):
        assert path.read_text() == (DIRECTORY / path.name).read_text(), path.name
