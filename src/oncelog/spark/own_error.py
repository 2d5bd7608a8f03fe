"""What a person needs to see of an error that went through Spark: their own part of it."""

import re
import traceback
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkException, PythonException

import oncelog

#: Where frames are that say nothing about the user's code.
_OURS: Final = str(Path(oncelog.__file__).parent)
_SPARKS: Final = Path(pyspark.__file__).parent
_MACHINERY: Final = (_OURS, str(_SPARKS), str(_SPARKS.with_name("py4j")), "<frozen ")
#: Where Spark's own part of a message begins: Java frames, a query plan, a repetition of it all.
_NOISE: Final = re.compile(r"\n(?:\s*Driver stacktrace:|\s*JVM stacktrace|\tat )|;\n")

#: The last line of a traceback from an executor, if the error is one of ours.
_OUR_ERROR: Final = re.compile(r"^oncelog\.[\w.]+: (.+)", re.MULTILINE)


def own_sentence(error: BaseException) -> str | None:
    """What our code said in an executor, if it was ours that failed: sentences for the user."""
    found = _OUR_ERROR.findall(str(error)) if isinstance(error, PythonException) else []
    return found[-1] if found else None


def essence(error: PySparkException) -> str:
    """What Spark says went wrong, without its stack and its plans."""
    return _NOISE.split(str(error), maxsplit=1)[0].strip()


def own_traceback(error: BaseException) -> str:
    """The traceback through the user's files only, and the error."""
    if isinstance(error, PythonException):
        return essence(error)  # it has the traceback of where it happened: in an executor
    stack = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_MACHINERY)
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(stack)] if stack else []
    if isinstance(error, PySparkException):
        lines.append(f"{type(error).__name__}: {essence(error)}")
    else:
        lines += traceback.format_exception_only(error)
    return "".join(lines).rstrip()
