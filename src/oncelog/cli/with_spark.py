"""Commands that need `oncelog[spark]` say so when it is not there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.cli.failure import CommandFailed

_PARTS: Final = ("pyspark", "pyarrow", "numpy", "pandas", "py4j")


@contextmanager
def spark_installed() -> Iterator[None]:
    """Around the imports: what is missing becomes a sentence."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _PARTS:
            raise
        raise CommandFailed(
            f"This needs Spark, and {error.name} is not installed: pip install 'oncelog[spark]'."
        ) from error
