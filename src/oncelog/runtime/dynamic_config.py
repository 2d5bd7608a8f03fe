"""Settings that change while the broker runs.

Over what the broker was started with lie two layers that clients change and the metadata log keeps:
settings of all brokers, and settings of this one. The uppermost layer that names a setting counts,
also after a restart. Only what takes effect at once may be changed so.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from oncelog.core.errors import InvalidConfig, InvalidRequest
from oncelog.core.metadata.records import Topic
from oncelog.core.topic_config import TOPIC_SETTINGS, Setting, TopicConfig
from oncelog.observe import notes
from oncelog.runtime.config import BrokerConfig, broker_setting

#: The defaults of topics, and what the broker looks up each time it needs it.
DYNAMIC: Final = frozenset(
    {topic.synonym for topic in TOPIC_SETTINGS.values() if topic.synonym is not None}
    | {"max.connections", "producer.id.expiration.ms"}
)

#: What clients changed, by broker; under None what holds for all of them.
Layers = Mapping[int | None, Mapping[str, str]]


def dynamic_setting(name: str) -> Setting:
    """The setting of this name, if it may change while the broker runs."""
    try:
        found = broker_setting(name)
    except InvalidConfig as error:
        raise InvalidRequest(str(error)) from None
    if name not in DYNAMIC:
        raise InvalidRequest(f"{name} cannot change while the broker runs: set it and restart.")
    return found


def in_force(
    started_with: BrokerConfig, layers: Layers, note: Callable[[object], None]
) -> BrokerConfig:
    """What the broker is set to now."""
    config = started_with
    for node_id in (None, started_with.node_id):
        for name, text in layers.get(node_id, {}).items():
            try:
                config = config.with_values({name: text}, origin="changed by a client")
            except InvalidConfig as error:
                # Another release stored it. Whoever asks sees what is in force instead.
                note(notes.SettingIgnored(name=name, error=str(error)))
    return config


def check_layers(started_with: BrokerConfig, layers: Layers, topics: Iterable[Topic]) -> None:
    """Refuse settings that contradict each other, or what a topic says itself."""
    config = started_with
    for node_id in (None, started_with.node_id):
        config = config.with_values(layers.get(node_id, {}), origin="changed by a client")
    defaults = config.checked().topic_defaults()
    for topic in topics:
        try:
            TopicConfig.from_overrides(defaults, topic.configs)
        except InvalidConfig as error:
            raise InvalidConfig(f"the topic {topic.name} would not agree: {error}") from None
