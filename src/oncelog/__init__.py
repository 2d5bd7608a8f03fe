"""A transactional log that speaks the Kafka protocol."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    """`oncelog.Broker`, imported only by those who use it."""
    if name == "Broker":
        return import_module("oncelog.testing.broker").Broker
    raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
