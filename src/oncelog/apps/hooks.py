"""What is to happen after a commit, and only then."""

import logging
from collections.abc import Callable

log = logging.getLogger("oncelog.apps")

Hook = Callable[[], None]


class Hooks:
    """The hooks of one transaction, in the order in which they were given."""

    def __init__(self) -> None:
        """None yet."""
        self._hooks: list[Hook] = []

    def add(self, hook: Hook) -> None:
        """One more."""
        self._hooks.append(hook)

    def run(self) -> None:
        """The commit has happened: a hook that fails is logged, and the others run all the same."""
        for hook in self._hooks:
            try:
                hook()
            except Exception:
                log.exception("a hook failed after its commit")
