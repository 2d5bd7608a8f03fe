"""Settings as the config APIs show them: each with its value and where that came from.

A value can be said in several places. The first of them counts, and a client may ask for the rest:
the topic, this broker, all brokers, what the broker was started with, the default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from oncelog.core.metadata.records import Topic
from oncelog.core.topic_config import TOPIC_SETTINGS, Setting, render
from oncelog.runtime.config import BROKER_SETTINGS
from oncelog.runtime.dynamic_config import DYNAMIC
from oncelog.runtime.node import Node


class Source(IntEnum):
    """Where a value was said, as Kafka numbers it."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STARTED_WITH = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """One place where a value is said, and under which name."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A setting with its value, and every place that says one, the one that counts first."""

    setting: Setting
    value: str | None
    is_read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name

    @property
    def source(self) -> Source:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


#: Settings of the same thing in coarser units, which count where the finer one is not set.
_COARSER: Final[Mapping[str, tuple[str, ...]]] = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.hours",),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
}


def topic_entries(node: Node, topic: Topic) -> Iterator[Entry]:
    """Every setting of a topic, also of one that is not there yet."""
    config = node.metadata.topic_config(topic)
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        own = topic.configs.get(name)
        said = [] if own is None else [Synonym(name=name, value=own, source=Source.TOPIC)]
        yield Entry(
            setting=setting,
            value=render(getattr(config, setting.attribute)),
            is_read_only=False,
            synonyms=(*said, *_said_by_broker(node, setting.synonym)),
        )


def broker_entries(node: Node) -> Iterator[Entry]:
    """Every setting of this broker."""
    for name, setting in sorted(BROKER_SETTINGS.items()):
        yield Entry(
            setting=setting,
            value=render(getattr(node.config, setting.attribute)),
            is_read_only=name not in DYNAMIC,
            synonyms=tuple(_said_by_broker(node, name)),
        )


def entries_of_all_brokers(node: Node) -> Iterator[Entry]:
    """What was set for all brokers while they ran, and nothing else."""
    for name, text in sorted(node.metadata.broker_configs.get(None, {}).items()):
        if name in BROKER_SETTINGS:
            said = Synonym(name=name, value=text, source=Source.ALL_BROKERS)
            yield Entry(
                setting=BROKER_SETTINGS[name], value=text, is_read_only=False, synonyms=(said,)
            )


def _said_by_broker(node: Node, name: str | None) -> Iterator[Synonym]:
    if name is None:
        return
    for each in (name, *_COARSER.get(name, ())):
        yield from _said_under(node, each)


def _said_under(node: Node, name: str) -> Iterator[Synonym]:
    setting = BROKER_SETTINGS[name]
    layers = node.metadata.broker_configs
    for node_id, source in ((node.config.node_id, Source.BROKER), (None, Source.ALL_BROKERS)):
        text = layers.get(node_id, {}).get(name)
        if text is not None:
            yield Synonym(name=name, value=text, source=source)
    if name in node.started_with.origins:
        value = render(getattr(node.started_with, setting.attribute))
        yield Synonym(name=name, value=value, source=Source.STARTED_WITH)
    if setting.default is not None:
        yield Synonym(name=name, value=render(setting.default), source=Source.DEFAULT)
