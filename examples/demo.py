"""Start a broker, write to it, kill it, and show that nothing acknowledged is gone.

python examples/demo.py
"""

import sys
import time

from confluent_kafka import Consumer, Message, Producer

import oncelog

RECORDS = 10_000
TOPIC = "orders"


def main() -> int:
    """Run the demonstration; 0 if every record was there exactly once."""
    began = time.monotonic()
    with oncelog.Broker({"num.partitions": "4"}, process=True) as broker:
        say(f"a broker listens on {broker.bootstrap_servers}", began)
        produce(broker.bootstrap_servers)
        say(f"{RECORDS} records written, each acknowledged after it was on the disk", began)
        broker.kill()
        say("the broker was killed with SIGKILL", began)
        broker.start()
        say("it is back: the logs were recovered", began)
        found = consume(broker.bootstrap_servers)
        say(f"a consumer group read {len(found)} records", began)
    lost = RECORDS - len(set(found))
    doubled = len(found) - len(set(found))
    print(f"\n  lost: {lost}   doubled: {doubled}")
    return 0 if lost == doubled == 0 else 1


def say(what: str, began: float) -> None:
    print(f"  {time.monotonic() - began:5.2f} s  {what}", flush=True)


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    failures: list[object] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for number in range(RECORDS):
        producer.produce(TOPIC, key=str(number), value=f"order {number}", on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(60)
    if failures or left:
        raise SystemExit(f"{left} records were not delivered; first error: {failures[:1]}")


def consume(servers: str) -> list[str]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": "demo",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            found.append((message.value() or b"").decode())
    # A little longer, for a record that is there twice.
    found += [(message.value() or b"").decode() for message in consumer.consume(1000, 0.5)]
    consumer.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
