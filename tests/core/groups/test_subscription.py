from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.groups.subscription import topics_of
from tests.core.groups.builders import subscription


def test_the_topics_of_a_consumer_are_read() -> None:
    assert topics_of(subscription("a", "b")) == frozenset({"a", "b"})
    assert topics_of(subscription()) == frozenset()


@given(st.binary(max_size=64))
def test_whatever_a_client_sends_is_topics_or_unknown(metadata: bytes) -> None:
    topics = topics_of(metadata)

    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_metadata_that_is_cut_or_lies_is_unknown() -> None:
    whole = subscription("a-topic")

    assert topics_of(b"") is None
    assert topics_of(whole[:10]) is None
    assert topics_of(b"\xff\xff" + whole[2:]) is None, "a negative version"
    assert topics_of(whole[:2] + b"\x7f\xff\xff\xff" + whole[6:]) is None, "too large a count"
