"""The trainer's errors: each is one line that says what to do."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written or used; the message begins with the file's name."""


class DivergedError(ArithmeticError):
    """A loss that is not a finite number, named by epoch, batch, device and rank; or a parameter that is none."""


def first_line(error):
    """Return the first line of an error's message, or its type's name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
