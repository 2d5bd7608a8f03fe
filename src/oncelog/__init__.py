"""A transactional log that speaks the Kafka protocol."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.apps.app import App
    from oncelog.testing.broker import Broker

__version__ = "0.1.0"
__all__ = ["App", "Broker", "__version__"]


def __getattr__(name: str) -> Any:
    """`oncelog.App` and `oncelog.Broker`, imported only by those who use them."""
    if name == "App":
        return import_module("oncelog.apps").App
    if name == "Broker":
        return import_module("oncelog.testing.broker").Broker
    raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
