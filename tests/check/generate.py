"""Long valid histories, line by line: plain sends, transactional copies of them, and polls.

    python -m tests.check.generate 10_000_000 > long.jsonl
    oncelog check long.jsonl

An operation is a call and its completion, so a history has about twice as many lines. Eight
producers send to `a`; four copiers read what was sent and write it to `b` in transactions that also
commit their offsets; two consumers poll `a` and `b`. One copy in fifty is aborted and done again. The
logs are all that is kept in memory here: eight bytes for each record.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

PARTITIONS: Final = 4
PRODUCERS: Final = 8
PER_ROUND: Final = 16  # operations: a send of each producer, a copy and a poll for each partition
FINAL_CHUNK: Final = 500  # records in one event of the final read
POLLERS: Final = 50  # the first of these process numbers
FINAL_READER: Final = 60
MARKER: Final = -1  # in a log: no record that a reader is handed


class _Writer:
    """Numbers the lines."""

    def __init__(self) -> None:
        self.n = 0

    def line(self, process: int, rest: str) -> str:
        n = self.n
        self.n += 1
        return f'{{"n":{n},"t":{n * 1000},"p":{process},{rest}}}\n'


def long_history(operations: int) -> Iterator[str]:
    """The lines of a valid history of about that many operations."""
    parts = [f"{topic}:{index}" for topic in "ab" for index in range(PARTITIONS)]
    quoted = ",".join(f'"{part}"' for part in parts)
    yield f'{{"kind":"run","format":1,"txn":true,"parts":[{quoted}]}}\n'
    writer = _Writer()
    line = writer.line
    inputs = [array("q") for _ in range(PARTITIONS)]
    outputs = [array("q") for _ in range(PARTITIONS)]
    copied = [0] * PARTITIONS
    polled = {"a": [0] * PARTITIONS, "b": [0] * PARTITIONS}
    value = 0
    for index in range(PARTITIONS):
        yield line(20 + index, f'"e":"call","op":"open","tid":"copier-{index}"')
        ref = writer.n - 1
        yield line(
            20 + index,
            f'"e":"ok","ref":{ref},"op":"open","tid":"copier-{index}","id":[{1000 + index},0]',
        )
    for number in range(max(1, operations // PER_ROUND)):
        calls = writer.n
        for producer in range(PRODUCERS):
            part = producer % PARTITIONS
            asked = f'"e":"call","op":"send","steps":[["w","a:{part}",{value + producer}]]'
            yield line(producer, asked)
        for producer in range(PRODUCERS):
            part = producer % PARTITIONS
            log = inputs[part]
            steps = f'[["w","a:{part}",{value},{len(log)}]]'
            yield line(producer, f'"e":"ok","ref":{calls + producer},"op":"send","steps":{steps}')
            log.append(value)
            value += 1
        for index in range(PARTITIONS):
            is_aborted = (number * PARTITIONS + index) % 50 == 0
            source, log, start = inputs[index], outputs[index], copied[index]
            end = len(source)
            count = end - start
            asked = ",".join(f'["w","b:{index}",{value + i}]' for i in range(count))
            call = writer.n
            yield line(
                20 + index,
                f'"e":"call","op":"txn","tid":"copier-{index}","steps":[["r"],{asked}]',
            )
            read = ",".join(f"[{offset},{source[offset]}]" for offset in range(start, end))
            wrote = ",".join(f'["w","b:{index}",{value + i},{len(log) + i}]' for i in range(count))
            kind, how = ("fail", "abort") if is_aborted else ("ok", "commit")
            yield line(
                20 + index,
                f'"e":"{kind}","ref":{call},"op":"txn","end":"{how}","tc":{call * 1000 + 500},'
                f'"id":[{1000 + index},0],"tid":"copier-{index}",'
                f'"steps":[["r",{{"a:{index}":[{read}]}}],{wrote}],'
                f'"group":["copiers",1,{{"a:{index}":[{start},{end}]}}]',
            )
            log.extend([MARKER] * count if is_aborted else range(value, value + count))
            log.append(MARKER)
            value += count
            if not is_aborted:
                copied[index] = end
        for poll in range(4):
            topic, index = "ab"[poll % 2], (number * 2 + poll // 2) % PARTITIONS
            log = (inputs if topic == "a" else outputs)[index]
            start, polled[topic][index] = polled[topic][index], len(log)
            call = writer.n
            process = POLLERS + (topic == "a")
            yield line(process, '"e":"call","op":"poll"')
            found = f'{{"{topic}:{index}":[{_records(log, start, len(log))}]}}'
            yield line(process, f'"e":"ok","ref":{call},"op":"poll","steps":[["r",{found}]]')
    yield line(-1, '"e":"note","op":"heal"')
    ends: list[str] = []
    for topic, logs in (("a", inputs), ("b", outputs)):
        for index, log in enumerate(logs):
            name = f"{topic}:{index}"
            ends.append(f'"{name}":[{len(log)},{len(log)}]')
            for start in range(0, len(log), FINAL_CHUNK):
                records = _records(log, start, min(start + FINAL_CHUNK, len(log)))
                steps = f'[["r",{{"{name}":[{records}]}}]]'
                yield line(
                    FINAL_READER, f'"e":"ok","ref":null,"op":"final","more":true,"steps":{steps}'
                )
    closed = ",".join(ends)
    yield line(FINAL_READER, f'"e":"ok","ref":null,"op":"final","ends":{{{closed}}}')


def _records(log: Sequence[int], start: int, end: int) -> str:
    return ",".join(
        f"[{offset},{log[offset]}]" for offset in range(start, end) if log[offset] != MARKER
    )


if __name__ == "__main__":
    sys.stdout.writelines(long_history(int(sys.argv[1])))
