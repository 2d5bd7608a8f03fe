"""Settings that change while the broker runs: layers, and what is in force."""

import pytest

from oncelog.core.errors import InvalidConfig, InvalidRequest
from oncelog.core.topic_config import TOPIC_SETTINGS
from oncelog.observe import notes
from oncelog.runtime.config import BROKER_SETTINGS, BrokerConfig
from oncelog.runtime.dynamic_config import (
    DYNAMIC,
    Layers,
    check_layers,
    dynamic_setting,
    in_force,
)

STARTED = BrokerConfig().with_values({"message.max.bytes": "2000"}, origin="test")


def test_the_uppermost_layer_that_names_a_setting_counts() -> None:
    every, one = {"message.max.bytes": "3000"}, {"message.max.bytes": "4000"}

    def limit(**layers: dict[str, str]) -> int:
        chosen = {None: layers.get("every", {}), 1: layers.get("one", {}), 2: {"x": "y"}}
        return in_force(STARTED, chosen, _no_note).message_max_bytes

    assert limit() == 2000
    assert limit(every=every) == 3000
    assert limit(one=one) == 4000
    assert limit(every=every, one=one) == 4000


def _no_note(note: object) -> None:
    raise AssertionError(note)


def test_a_stored_setting_of_another_release_is_ignored_with_a_note() -> None:
    noted: list[object] = []
    layers: Layers = {None: {"log.colour": "blue", "message.max.bytes": "3000"}}

    config = in_force(STARTED, layers, noted.append)

    assert config.message_max_bytes == 3000
    assert [type(note) for note in noted] == [notes.SettingIgnored]


def test_every_default_of_a_topic_may_change_and_every_dynamic_setting_exists() -> None:
    defaults = {topic.synonym for topic in TOPIC_SETTINGS.values() if topic.synonym}

    assert defaults <= DYNAMIC <= set(BROKER_SETTINGS)


@pytest.mark.parametrize("name", ["node.id", "oncelog.flush", "log.retention.hours", "nonsense"])
def test_what_takes_effect_at_the_start_alone_cannot_change(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        dynamic_setting(name)


def test_layers_that_contradict_each_other_are_refused() -> None:
    layers = {
        None: {"log.cleaner.max.compaction.lag.ms": "5"},
        1: {"log.cleaner.min.compaction.lag.ms": "6"},
    }

    with pytest.raises(InvalidConfig, match="above"):
        check_layers(STARTED, layers, [])
