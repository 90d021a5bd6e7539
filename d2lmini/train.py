"""``python -m d2lmini.train`` trains a network on several devices; see `d2lmini.trainer.cli`.

Importing torch takes seconds, in which an interrupt must end in one line too: so handlers come before imports.
"""

import os
import signal


def _end(*_):
    """End at once, before there is anything to save."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def _interrupt(*_):
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # a second one ends it wherever it is, without another word
    raise KeyboardInterrupt


if __name__ == "__main__":
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a parent ignores it
    if listens:
        signal.signal(signal.SIGINT, _end)
    from d2lmini.trainer.cli import main

    if listens:
        signal.signal(signal.SIGINT, _interrupt)
    if code := main():
        os._exit(code)  # a thread of torch's, or output that nobody reads, would make an ordinary end loud
    signal.signal(signal.SIGINT, signal.SIG_IGN)
