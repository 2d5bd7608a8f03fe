"""`@app.transactional`: a function whose sends are one transaction, run again if that is aborted."""

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from oncelog.apps.errors import Aborted, Misconfigured
from oncelog.apps.scope import Scope

log = logging.getLogger("oncelog.apps")

P = ParamSpec("P")
T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


def pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 16), _LONGEST_PAUSE_S))


def transactional(
    function: Callable[P, T],
    *,
    scope: Callable[[], Scope],
    is_joining: Callable[[], bool],
    tries: int,
) -> Callable[P, T]:
    """The function with a transaction around it; its result comes after the commit."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misconfigured(
            f"{function.__qualname__} is a generator, whose body runs when its transaction is over: "
            f"use `with app.transaction()` inside of it."
        )
    run = _Tries(function.__qualname__, tries)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def in_transaction_async(*args: P.args, **given: P.kwargs) -> Any:
            for failures in range(1, tries + 1):
                try:
                    async with scope():
                        return await function(*args, **given)
                except Aborted as error:
                    if is_joining():
                        raise
                    await asyncio.sleep(run.pause_s(failures, error))
            raise AssertionError("the last try returns or raises")

        return cast(
            Callable[P, T], in_transaction_async
        )  # T is what the coroutine function returns

    @functools.wraps(function)
    def in_transaction(*args: P.args, **given: P.kwargs) -> T:
        for failures in range(1, tries + 1):
            try:
                with scope():
                    return function(*args, **given)
            except Aborted as error:
                if is_joining():
                    raise
                time.sleep(run.pause_s(failures, error))
        raise AssertionError("the last try returns or raises")

    return in_transaction


class _Tries:
    """Counts the tries of one function's calls."""

    def __init__(self, name: str, tries: int) -> None:
        self._name = name
        self._tries = tries

    def pause_s(self, failures: int, error: Aborted) -> float:
        """How long to wait before the next try; after the last one there is none."""
        if failures >= self._tries:
            raise Aborted(
                f"{self._name} was aborted {failures} times, nothing of it is visible. The last time: "
                f"{error}"
            ) from error
        log.warning(
            "a function runs again",
            extra={"fields": {"function": self._name, "failures": failures, "why": str(error)}},
        )
        return pause_s(failures)
