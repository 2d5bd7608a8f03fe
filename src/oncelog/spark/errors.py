"""What can go wrong in a pipeline, each by its own name, with a sentence that says what to do."""


class PipelineError(Exception):
    """A pipeline, sink or write that cannot go on."""


class Refused(PipelineError):
    """The batch does not follow from the recorded progress. Nothing was written."""


class DriverReplaced(PipelineError):
    """Another driver has taken over the transactional id: this one must stop."""


class GivenUp(PipelineError):
    """A batch failed again and again. Nothing of it is visible."""


class BadConfiguration(PipelineError):
    """Settings that cannot work, or that would break the promise."""


class Stopped(PipelineError):
    """The query was stopped in the middle of a batch. Nothing of it is visible."""

    #: By these words, and in a short text only, Spark knows that what failed was stopped by itself.
    _FOR_SPARK = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling it: "
        "java.lang.InterruptedException"
    )

    def __init__(self) -> None:
        """There is one reason only."""
        super().__init__(f"The query was stopped while it wrote a batch. ({self._FOR_SPARK})")


class RunAgain(Exception):
    """Raised in a write task: the batch must be run again, as a whole, under a new epoch.

    The driver finds the marker in whatever Spark makes of the exception.
    """

    MARKER = "oncelog-run-again"

    def __init__(self, why: str) -> None:
        """`why` is a sentence for the log."""
        self.why = why
        super().__init__(f"[{self.MARKER}] {why}")

    @classmethod
    def found_in(cls, text: str) -> "RunAgain | None":
        """The one that a task raised, from what Spark says of a failed job."""
        _, marker, rest = text.rpartition(f"[{cls.MARKER}] ")
        return cls(rest.split("\n", 1)[0]) if marker else None


def reason(error: Exception) -> str:
    """What a person is told of an error."""
    return error.why if isinstance(error, RunAgain) else str(error)
