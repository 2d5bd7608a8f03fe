"""What can go wrong in an app, each by its own name, with a sentence that says what to do."""


class AppError(Exception):
    """Whatever an app itself has to say."""


# --- one transaction ------------------------------------------------------------------------


class Aborted(AppError):
    """The transaction was aborted. Nothing of it is or will be visible; it may be run again."""


class TooSlow(AppError):
    """The transaction lasted too long and was aborted. Nothing of it is or will be visible."""


class Doomed(AppError):
    """A call that joined the transaction failed, so all of it was aborted. Nothing is visible."""


class OutcomeUnknown(AppError):
    """A commit was asked for and nobody can say whether it happened. It may or may not be visible."""


class BadRecord(AppError):
    """A record cannot be sent as it is. Nothing was sent."""


class Busy(AppError):
    """All producers of the app stayed in use. Nothing was sent."""


class NoTransaction(AppError):
    """Something was sent where there is no transaction that it could be part of. Nothing was sent."""


# --- a listener -----------------------------------------------------------------------------


class Poisoned(AppError):
    """A record failed again and again, and there is no topic for dead letters. It is not consumed."""


class NotStopped(AppError):
    """A handler did not return in time. What it did is aborted by the brokers."""


# --- the whole app --------------------------------------------------------------------------


class Unreachable(AppError):
    """No broker answered. Nothing was begun."""


class Fatal(AppError):
    """The app cannot go on; trying again does not help."""


class Fenced(Fatal):
    """Another instance has taken over. Nothing that this one had not committed is visible."""


class NotAuthorised(Fatal):
    """The brokers do not take this user, or do not let it do this."""


class Misconfigured(Fatal):
    """Settings that cannot work, or that would break the promise."""


class Closed(Fatal):
    """The app was closed."""
