"""What a reader may ask for, in the words of Spark's Kafka source; every mistake is a sentence."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oncelog.client.errors import BadSettings
from oncelog.client.fetching import Isolation
from oncelog.client.settings import ClientSettings, parse_settings
from oncelog.core.types import TopicPartition
from oncelog.spark.offsets import EARLIEST, BadOffsets, read_offsets, read_partition
from oncelog.spark.planning import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Border,
    End,
    Selection,
    Subscribe,
    SubscribePattern,
)

T = TypeVar("T")

#: How long minOffsetsPerTrigger may hold records back.
MAX_TRIGGER_DELAY_S: Final = 15 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, from where to where, and how much at a time."""

    settings: ClientSettings
    selection: Selection
    #: `None` where nothing was said: batches begin at the earliest, streams at the latest offset.
    starting: Border | None = None
    ending: Border | None = None
    #: Whether a time that no record has reached means the end of the log; else it is an error.
    late_start_is_latest: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = MAX_TRIGGER_DELAY_S
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED


class BadOption(BadSettings):
    """An option that does not exist, or has a value that it cannot have."""


_PREFIX: Final = "kafka."
_NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "isolation",
)
#: They tune or name consumers of Spark's Kafka source; there are none here.
_WITHOUT_MEANING: Final = frozenset(
    {
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    }
)
#: Client settings that would change what is read, and what to say instead.
_REFUSED: Final = {
    "auto.offset.reset": "say startingOffsets",
    "enable.auto.commit": "offsets are kept by the query's checkpoint, and no group is joined",
    "interceptor.classes": "there is no Java client here that could be intercepted",
    "key.deserializer": "keys are binary, and expressions in Spark make something of them",
    "value.deserializer": "values are binary, and expressions in Spark make something of them",
}


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source; the case of their names does not matter."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(options)
    return SourceOptions(
        settings=_settings(options),
        selection=_selection(options),
        starting=_border(options, "starting"),
        ending=_border(options, "ending"),
        late_start_is_latest=_late_start_is_latest(options),
        max_offsets_per_trigger=_count(options, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_count(options, "minOffsetsPerTrigger"),
        max_trigger_delay_s=_read(options, "maxTriggerDelay", _duration_s, MAX_TRIGGER_DELAY_S),
        min_partitions=_count(options, "minPartitions"),
        max_records_per_partition=_count(options, "maxRecordsPerPartition"),
        fail_on_data_loss=_read(options, "failOnDataLoss", _flag, True),
        include_headers=_read(options, "includeHeaders", _flag, False),
        isolation=_isolation(options),
    )


def check_for_batch(options: SourceOptions) -> None:
    """Refuse what only a stream can mean."""
    if _holds(options.starting, End.LATEST):
        raise BadOption("startingOffsets of a batch cannot be latest (-1): there would be no rows.")
    if _holds(options.ending, End.EARLIEST):
        raise BadOption("endingOffsets of a batch cannot be earliest (-2): there would be no rows.")


def check_for_stream(options: SourceOptions) -> None:
    """Refuse what only a batch can mean."""
    if options.ending is not None:
        raise BadOption(
            "A stream has no end: leave endingOffsets, endingTimestamp and "
            "endingOffsetsByTimestamp out, or use spark.read."
        )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most}).")


def _holds(border: Border | None, end: End) -> bool:
    if isinstance(border, AtOffsets):
        return end.value in border.offsets.values()
    return border is end


# --- names --------------------------------------------------------------------------------------


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in sorted(options):
        if name.startswith(_PREFIX):
            why = _REFUSED.get(name.removeprefix(_PREFIX))
            if why is not None:
                raise BadOption(f"The option {name} is not supported: {why}.")
        elif name not in known and name not in _WITHOUT_MEANING:
            alike = difflib.get_close_matches(name, known, n=1)
            hint = f"{known[alike[0]]} may be meant" if alike else f"there are {', '.join(_NAMES)}"
            raise BadOption(f"There is no option {name}: {hint}, and kafka.* for client settings.")


def _settings(options: Mapping[str, str]) -> ClientSettings:
    if not options.get("kafka.bootstrap.servers", "").strip():
        raise BadOption("The option kafka.bootstrap.servers is missing: say HOST:PORT of a broker.")
    return parse_settings(
        {
            name.removeprefix(_PREFIX): value
            for name, value in options.items()
            if name.startswith(_PREFIX) and name != "kafka.isolation.level"
        }
    )


# --- values -------------------------------------------------------------------------------------


def _read(options: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        return read(text.strip())
    except ValueError as error:
        raise BadOption(f"The option {name} is {text!r}: {error}.") from error


def _count(options: Mapping[str, str], name: str) -> int | None:
    return _read(options, name, _positive, None)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63):
        raise ValueError("write a whole number above 0")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _time_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise ValueError("write milliseconds since 1970, as a whole number")
    return int(text)


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _duration_s(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", text.lower())
    if not found or (found[2] or "ms") not in _UNITS_S:
        raise ValueError("write a duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_S[found[2] or "ms"]


def _late_start_is_latest(options: Mapping[str, str]) -> bool:
    def read(text: str) -> bool:
        if text.lower() not in ("error", "latest"):
            raise ValueError("write error or latest")
        return text.lower() == "latest"

    return _read(options, "startingOffsetsByTimestampStrategy", read, False)


def _isolation(options: Mapping[str, str]) -> Isolation:
    def read(text: str) -> Isolation:
        if text.upper() not in Isolation.__members__:
            raise ValueError("write read_committed or read_uncommitted")
        return Isolation[text.upper()]

    ours = _read(options, "isolation", read, None)
    kafkas = _read(options, "kafka.isolation.level", read, None)
    if None not in (ours, kafkas) and ours is not kafkas:
        raise BadOption("The options isolation and kafka.isolation.level contradict each other.")
    chosen = ours if ours is not None else kafkas
    return Isolation.READ_COMMITTED if chosen is None else chosen


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# --- which partitions ---------------------------------------------------------------------------


def _selection(options: Mapping[str, str]) -> Selection:
    readers: dict[str, Callable[[str], Selection]] = {
        "subscribe": _subscribe,
        "subscribePattern": _pattern,
        "assign": _assign,
    }
    given = [name for name in readers if name.lower() in options]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise BadOption(
            f"Say what to read with one of the options subscribe, subscribePattern and assign; "
            f"there is {found}."
        )
    (name,) = given
    try:
        return readers[name](options[name.lower()].strip())
    except (ValueError, BadOffsets) as error:
        raise BadOption(f"The option {name} cannot be read: {error}") from error


def _subscribe(text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError("name a topic, or several with commas between.")
    return Subscribe(topics)


def _pattern(text: str) -> SubscribePattern:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}.") from error
    if not text:
        raise ValueError("write a regular expression for the names of topics.")
    return SubscribePattern(text)


def _assign(text: str) -> Assign:
    written = _json(text)
    shape = 'write {"topic": [0, 1]}.'
    if not isinstance(written, dict) or not written:
        raise ValueError(shape)
    places = []
    for topic, partitions in written.items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(shape)
        places += [TopicPartition(topic, read_partition(number)) for number in partitions]
    return Assign(tuple(sorted(set(places))))


# --- from where to where --------------------------------------------------------------------------


def _border(options: Mapping[str, str], kind: str) -> Border | None:
    """What counts most comes first: one time for all, times by partition, offsets."""
    readers: dict[str, Callable[[str], Border]] = {
        f"{kind}Timestamp": lambda text: AtTime(_time_ms(text)),
        f"{kind}OffsetsByTimestamp": lambda text: AtTimes(read_offsets(_json(text))),
        f"{kind}Offsets": _offsets,
    }
    for name, read in readers.items():
        if name.lower() in options:
            try:
                return read(options[name.lower()].strip())
            except (ValueError, BadOffsets) as error:
                raise BadOption(f"The option {name} cannot be read: {error}") from error
    return None


def _offsets(text: str) -> Border:
    if text.upper() in End.__members__:
        return End[text.upper()]
    try:
        return AtOffsets(read_offsets(_json(text), lowest=EARLIEST))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"write earliest, latest, or offsets by partition as JSON ({error})."
        ) from error
