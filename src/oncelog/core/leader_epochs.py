"""Which leader wrote which part of a log: what a client needs to notice a truncation (KIP-320).

leader-epoch-checkpoint, as Kafka writes it:  0 \\n <count> \\n <epoch> <start offset> \\n ...
"""

from bisect import bisect_right


class BadCheckpoint(Exception):
    """A checkpoint file that does not read as one."""


class LeaderEpochs:
    """Epochs with the offset at which each of them began, both growing."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` writes from here on; says whether that is news."""
        if self.entries and self.entries[-1][0] >= epoch:
            return False
        # An epoch that wrote nothing leaves no trace.
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after the new end."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs whose records are all gone; the one in force at the start begins there."""
        index = bisect_right([start for _, start in self.entries], start_offset) - 1
        if index >= 0:
            self.entries = [(self.entries[index][0], start_offset), *self.entries[index + 1 :]]

    def latest(self) -> int | None:
        """The epoch of the newest record."""
        return self.entries[-1][0] if self.entries else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest epoch not above the asked one, and where it ended."""
        found: tuple[int, int] | None = None
        for index, (known, _) in enumerate(self.entries):
            if known > epoch:
                break
            is_last = index + 1 == len(self.entries)
            found = (known, log_end_offset if is_last else self.entries[index + 1][1])
        return found

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote this offset."""
        index = bisect_right([start for _, start in self.entries], offset) - 1
        return self.entries[index][0] if index >= 0 else None


def encode_epochs(epochs: LeaderEpochs) -> bytes:
    """The text of the checkpoint."""
    lines = ["0", str(len(epochs.entries))]
    lines += [f"{epoch} {start}" for epoch, start in epochs.entries]
    return ("\n".join(lines) + "\n").encode()


def decode_epochs(data: bytes) -> LeaderEpochs:
    """Read the checkpoint."""
    try:
        # The end of the last line counts: `5 25` cut to `5 2` would be another offset.
        version, count, *lines, rest = data.decode().split("\n")
        entries = [(int(e), int(s)) for e, s in (line.split() for line in lines)]
        is_whole = version == "0" and int(count) == len(entries) and rest == ""
    except ValueError as error:
        raise BadCheckpoint(str(error)) from error
    if not is_whole or entries != sorted(entries):
        raise BadCheckpoint(f"version {version}, {count} entries announced, {len(entries)} found")
    return LeaderEpochs(entries)
