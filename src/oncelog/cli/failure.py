"""How a command says that it did not succeed."""


class CommandFailed(Exception):
    """The operation failed; the text is a sentence for the person who asked for it."""


class Misused(CommandFailed):
    """The arguments are well-formed one by one and make no sense together."""
