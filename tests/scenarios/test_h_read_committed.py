"""Group H: what a read_committed reader sees of hundreds of producers in one partition."""

from contextlib import closing
from random import Random

from tests.txn.producer import OK, TOPIC, Producer
from tests.txn.reader import ends, read
from tests.txn.world import World

PRODUCERS = 300
TIMEOUT_MS = 30_000


def test_h126_three_hundred_producers_are_seen_whole_in_order_or_not_at_all() -> None:
    """P5-P7, P9: 30 % abort, some die, the power goes at random; a reader looks in between."""
    rng = Random(126)
    with closing(World(seed=126)) as world:
        world.create(TOPIC)
        coming = [
            Producer(world, f"p{n}", is_v2=n % 3 > 0, timeout_ms=TIMEOUT_MS)
            for n in range(PRODUCERS)
        ]
        under_way: list[tuple[Producer, int]] = []
        sent: list[tuple[str, bytes]] = []
        committed: set[str] = set()
        crashes = 0
        seen: list[bytes] = []
        while coming or under_way:
            if coming and (len(under_way) < 12 or rng.random() < 0.3):
                under_way.append((coming.pop().ready(), rng.randint(1, 4)))
            place = rng.randrange(len(under_way))
            producer, left = under_way[place]
            name = producer.transactional_id
            if left:
                value = f"{name}-{left}".encode()
                producer.begin({0: [value]})
                sent.append((name, value))
                under_way[place] = (producer, left - 1)
                continue
            under_way.pop(place)
            if (fate := rng.random()) < 0.6:
                producer.decide(True)
                committed.add(name)
            elif fate < 0.9:
                producer.decide(False)
            if rng.random() < 0.04:
                world.crash()
                crashes += 1
            if rng.random() < 0.1:
                before, seen = seen, read(world)
                assert seen[: len(before)] == before
                assert {value.partition(b"-")[0].decode() for value in seen} <= committed
        world.pass_ms(TIMEOUT_MS + 2_000)  # Those who died are aborted.

        assert read(world) == [value for name, value in sent if name in committed]
        assert len(set(ends(world))) == 1
        assert crashes > 5
        assert 100 < len(committed) < 250
        probe = Producer(world, "probe").ready()
        probe.begin({0: [b"probe"]}).commit()
        assert read(world)[-1] == b"probe"
        assert probe.init().error_code == OK
