"""Leader epochs: which epoch wrote which offsets, and the file that remembers it."""

import pytest

from oncelog.core.leader_epochs import BadCheckpoint, LeaderEpochs, decode_epochs, encode_epochs


def some_epochs() -> LeaderEpochs:
    """Epoch 0 wrote 0-9, epoch 2 wrote 10-24, epoch 5 from 25 on."""
    return LeaderEpochs([(0, 0), (2, 10), (5, 25)])


def test_an_epoch_begins_where_it_first_writes() -> None:
    epochs = LeaderEpochs()

    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 5)
    assert epochs.assign(3, 7)
    assert not epochs.assign(2, 9)
    assert epochs.entries == [(0, 0), (3, 7)]
    assert epochs.latest() == 3


def test_an_epoch_that_wrote_nothing_leaves_no_trace() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10)])

    epochs.assign(2, 10)

    assert epochs.entries == [(0, 0), (2, 10)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [(0, (0, 10)), (1, (0, 10)), (2, (2, 25)), (4, (2, 25)), (5, (5, 40)), (9, (5, 40))],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(
    asked: int, found: tuple[int, int]
) -> None:
    """KIP-320: the largest epoch not above the asked one."""
    assert some_epochs().end_offset_for(asked, 40) == found


def test_nothing_is_known_of_an_epoch_before_the_first() -> None:
    assert LeaderEpochs([(3, 10)]).end_offset_for(2, 40) is None
    assert LeaderEpochs().end_offset_for(2, 40) is None


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (24, 2), (25, 5), (99, 5)])
def test_each_offset_was_written_by_one_epoch(offset: int, epoch: int) -> None:
    assert some_epochs().epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("end", "left"),
    [(40, 3), (26, 3), (25, 2), (11, 2), (10, 1), (1, 1), (0, 0)],
)
def test_a_cut_log_forgets_epochs_at_its_end(end: int, left: int) -> None:
    epochs = some_epochs()

    epochs.truncate_from_end(end)

    assert epochs.entries == some_epochs().entries[:left]


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, [(0, 0), (2, 10), (5, 25)]),
        (4, [(0, 4), (2, 10), (5, 25)]),
        (10, [(2, 10), (5, 25)]),
        (24, [(2, 24), (5, 25)]),
        (30, [(5, 30)]),
    ],
)
def test_a_log_that_lost_its_head_keeps_the_epoch_in_force(
    start: int, entries: list[tuple[int, int]]
) -> None:
    epochs = some_epochs()

    epochs.truncate_from_start(start)

    assert epochs.entries == entries


def test_the_checkpoint_is_kafkas_text() -> None:
    text = encode_epochs(some_epochs())

    assert text == b"0\n3\n0 0\n2 10\n5 25\n"
    assert decode_epochs(text).entries == some_epochs().entries


def test_a_checkpoint_that_is_cut_anywhere_is_not_believed() -> None:
    """D57: `5 25` cut to `5 2` would be another epoch's start."""
    text = encode_epochs(some_epochs())

    for size in range(len(text)):
        with pytest.raises(BadCheckpoint):
            decode_epochs(text[:size])


@pytest.mark.parametrize(
    "text",
    [
        b"1\n1\n0 0\n",
        b"0\nx\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\na b\n",
        b"0\n2\n2 10\n0 0\n",
        b"\xff\xfe\n",
        bytes(40),
    ],
)
def test_a_damaged_checkpoint_is_not_believed(text: bytes) -> None:
    """Check 24, for epochs."""
    with pytest.raises(BadCheckpoint):
        decode_epochs(text)
