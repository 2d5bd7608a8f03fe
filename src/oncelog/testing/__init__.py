"""What users need to test against a real broker: `Broker`, and the fixture `oncelog_broker`."""

from oncelog.testing.broker import Broker

__all__ = ["Broker"]
