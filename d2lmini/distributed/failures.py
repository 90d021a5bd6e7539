"""What a rank does when it fails or loses another: one line says which rank and why, and torchrun ends the rest.

    raises         says so in one line, and ends                  torchrun ends the others at once
    is killed                                                     torchrun names it, and ends the others at once
    loses torchrun, its parent      says so, and ends
    stops, hangs   the others wait for `timeout`, then name it    torchrun ends it: SIGTERM, after 30 s SIGKILL

A rank that has lost another does not end at once: torchrun takes the first that ends for the cause.
"""

import os
import threading
import time
import traceback
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from d2lmini.distributed.errors import LostRankError, of_rank

PARENT_S = 1.0  # between two looks at whether the parent is still there
GRACE_S = 5.0  # that a rank leaves to torchrun, and to the other ranks, to know the cause better


def ranks(numbers):
    """Return "rank 1" or "ranks 1, 2"."""
    return f"rank{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def absent(store, place, rank, world_size, seconds, word=""):
    """Leave a word in the store at a place; return the ranks that leave none within so many seconds."""
    keys = [f"{place}/{number}" for number in range(world_size)]
    store.set(keys[rank], word)
    with suppress(RuntimeError):  # time is up
        store.wait(keys, timedelta(seconds=seconds))
    return [number for number, key in enumerate(keys) if not store.check([key])]


class Report:
    """Where the ranks of one attempt say what ended it: the first prints it, torchrun's report gets its traceback."""

    def __init__(self, store, rank, world_size, program):
        """Note who speaks. store: see `join.connect`. program: what a line begins with."""
        self.store, self.rank, self.world_size, self.program = store, rank, world_size, program

    def say(self, line):
        """Write the line unless another rank has said one; in one piece, so that others' lines don't mix with it."""
        first = 1
        with suppress(RuntimeError):  # the store may be gone with its process
            first = self.store.add("said", 1)
        if first == 1:
            os.write(2, f"{self.program}: error: {line}\n".encode(errors="backslashreplace"))

    def call(self, function, advice="", trace=False):
        """Call a function; if it fails, say why and end this process, whatever its threads do.

        Leaving with SystemExit is a failure too: others still wait.

        Args:
            function: called without arguments.
            advice: what to add when the user interrupts.
            trace: whether to print the traceback too.
        """
        handler = get_error_handler()
        handler.initialize()
        try:
            function()
        except KeyboardInterrupt:
            self._end(f"interrupted{advice}", 130)
        except BaseException as error:
            if trace:
                os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
            line = self._loss(error) if lost_another(error) else of_rank(error, self.rank)
            handler.record_exception(error)
            self._end(line, 1)

    def end_with_parent(self):
        """From now on end this process when its parent ends: a torchrun that is killed cannot end its ranks."""
        parent = os.getppid()

        def watch():
            while os.getppid() == parent:
                time.sleep(PARENT_S)
            self._end(f"rank {self.rank}: torchrun, which started it, has ended", 1)

        threading.Thread(target=watch, daemon=True).start()

    def _loss(self, error):
        """Return which ranks do not answer any more; while this waits, torchrun may end the process."""
        gone, why = [], "was killed or has ended"
        with suppress(RuntimeError):
            gone = absent(self.store, "lost", self.rank, self.world_size, GRACE_S)
        if "timed out" in f"{error} {error.__cause__}".lower():
            why = "hangs, was stopped, or needs a longer --timeout"
        return f"rank {self.rank} lost {ranks(gone)}, which {why}" if gone else of_rank(error, self.rank)

    def _end(self, line, code):
        self.say(line)
        os._exit(code)


def lost_another(error):
    """Return whether an error only tells that another rank has failed."""
    return any(isinstance(e, dist.DistError | LostRankError) or "gloo" in str(e) for e in (error, error.__cause__))
