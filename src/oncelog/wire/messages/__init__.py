"""Every Kafka message that we speak, one module for each API.

Modules are imported when their API is first used: a broker that serves producers does not pay,
in memory or at start, for the messages of an administrator.
"""

import importlib
from functools import cache
from typing import Any

from oncelog.wire.messages.index import NAMES


def module_name(api_key: int) -> str:
    """`InitProducerId` lives in `init_producer_id`."""
    name = NAMES[api_key]
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")


@cache
def request_class(api_key: int) -> Any:
    """The request of an API, in all of its versions."""
    module = importlib.import_module(f"{__name__}.{module_name(api_key)}")
    return getattr(module, f"{NAMES[api_key]}Request")


@cache
def response_class(api_key: int) -> Any:
    """The response of an API, in all of its versions."""
    module = importlib.import_module(f"{__name__}.{module_name(api_key)}")
    return getattr(module, f"{NAMES[api_key]}Response")
