"""Ranks that watch one another, so that a run in which one fails ends everywhere, with one sentence that says why.

    rank 0   main thread: trains      watch: beat ──►┌───────┐◄── beat :watch      main thread: trains   rank 1
                                      look  ◄────────│ store │────────► look
    guard ◄── pipe ──┘                               └───────┘                     └── pipe ──► guard

Each rank has a thread that tells the others about once a second how far it has come, and looks how far they have. The
first that knows of a failure says it, once for all, and every rank ends. A rank that is itself stopped, or whose
interpreter is stuck, can't end by itself: a guard, a small process beside it, kills it when its thread falls silent.

Time is counted in turns of a process's own, so a machine that sleeps, or a run that is stopped as a whole, is no hang.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist

from d2lmini.distributed.pulse import pulse
from d2lmini.distributed.verdict import Beat, Seen, look, machine, missing, verdict
from d2lmini.distributed.worker import place

SAID, WHO = "d2lmini/said", "d2lmini/beat{}"
ALIVE, TOLD = b".", b"!"  # what the guard is told: that the watch runs, and that this process was told to end
LOOSE_TURNS = 5  # after a signal, how many turns to wait for a cause before the signal itself is taken for it
CONSEQUENCES = (ConnectionError, TimeoutError, dist.DistError)  # what a rank sees when another has failed


class Board:
    """Where the ranks say what ended the run: the first to do so prints it."""

    def __init__(self, store, program):
        """Take a connection of its own to the store, which the main thread may block for long."""
        self.store, self.program = store.clone(), program

    def say(self, line):
        """Print the line unless another rank has said one."""
        if self.store.add(SAID, 1) == 1:
            tell(self.program, line)

    def said(self):
        """Return whether some rank has said what ended the run."""
        return self.store.add(SAID, 0) > 0


def tell(program, line):
    """Write an error line, in one piece, so that other processes' lines don't mix with it."""
    os.write(2, f"{program}: error: {line}\n".encode())


def sentence(error):
    """Return an error's first line; for a kind that tells of a mistake in the program, with its kind and place."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ValueError | RuntimeError | OSError | ArithmeticError):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {line}" + "".join(f" (line {f.lineno} of {f.filename})" for f in frames[-1:])


def busy_s():
    """Return the seconds for which this process ran, or its main thread was ready to: to wait for a core is no rest.

    Only Linux tells the latter, in nanoseconds: the second number of schedstat.
    """
    waited = 0
    with suppress(OSError, ValueError, IndexError):
        waited = int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1])
    return time.process_time() + waited / 1e9


class Watch:
    """Watches over this rank and the others until `leave`; made in the main thread.

    patience: seconds, see `verdict.verdict`. hint: what to say to someone who interrupts.
    """

    def __init__(self, board, rank, world_size, patience, hint=""):
        """Begin to watch."""
        self.board, self.rank, self.patience, self.hint = board, rank, patience, hint
        self.turn_s = min(1.0, patience / 5)
        self.seen, self.number, self.signal, self.left = dict.fromkeys(range(world_size), Seen()), 0, None, False
        self.main, self.host = threading.get_ident(), socket.gethostname()
        self.guard = _guard(round(patience / self.turn_s) + 2, LOOSE_TURNS, self.turn_s)
        self.waking, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._theirs = theirs
        self._before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGTERM, lambda *_: self._tell_guard(TOLD))  # and it wakes the watch
        self.thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self.thread.start()

    def leave(self):
        """Tell the others that this rank is done, and stop watching."""
        self.left = True
        self._theirs.send(b"\0")
        self.thread.join()
        signal.set_wakeup_fd(self._before)
        signal.signal(signal.SIGTERM, self._handler)
        self.guard.stdin.close()
        self.guard.wait()

    def explain(self, error, alike=False):
        """Say what ended this rank: the error, or the rank whose failure it is a consequence of; then end.

        alike: whether every rank raises the same, so that it matters little which one says it.
        """
        if isinstance(error, CONSEQUENCES) or "gloo" in str(error) or "by peer" in str(error):
            self.thread.join(self.patience + LOOSE_TURNS * self.turn_s)  # it ends this process when it knows
        self.end(sentence(error) if alike else f"rank {self.rank}: {sentence(error)}")

    def end(self, line, code=1):
        """Say a line unless one was said, and end this process, whatever its threads are doing."""
        with suppress(RuntimeError):  # the store may be gone
            self.board.say(line)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)

    def _watch(self):
        turns = 0
        while True:
            try:
                self._tell()
                if self.left:
                    return
                self._look()
            except RuntimeError as error:
                if self.left:
                    return
                tell(self.board.program, f"rank {self.rank}: the ranks' store is gone: {str(error).splitlines()[0]}")
                os._exit(1)
            turns = turns + 1 if self.signal else 0
            if turns > LOOSE_TURNS:
                name, who = signal.Signals(self.signal).name, missing(self.seen, (LOOSE_TURNS - 1) * self.turn_s)
                self.end(f"{who}{'; ' * bool(who)}ended by {name}{self.hint}", 128 + self.signal)
            self._wait()

    def _tell(self):
        frame = sys._current_frames().get(self.main)
        where = place(frame) if frame else "its end"
        self.number += 1
        beat = Beat(self.number, pulse.marks, busy_s(), pulse.slow > 0 or pulse.compiling, where, self.host, machine(),
                    os.getpid(), self.left, *pulse.working())  # fmt: skip
        self.board.store.set(WHO.format(self.rank), json.dumps(asdict(beat)))
        self._tell_guard(ALIVE)

    def _tell_guard(self, word):
        with suppress(OSError):
            os.write(self.guard.stdin.fileno(), word)

    def _look(self):
        store = self.board.store
        if self.board.said():
            self.end("")
        there = [rank for rank, seen in self.seen.items() if seen.beat or store.check([WHO.format(rank)])]
        beats = dict(zip(there, store.multi_get([WHO.format(rank) for rank in there]), strict=True))
        beats = {rank: Beat(**json.loads(text)) for rank, text in beats.items()}
        self.seen = look(self.seen, beats, self.turn_s)
        found = verdict(self.seen, self.patience)
        if found:
            self.end(found)

    def _wait(self):
        """Wait for a turn, or for a signal; after one, in short turns."""
        if select.select([self.waking], [], [], self.turn_s)[0]:
            for number in self.waking.recv(100):
                self.signal = number if number in (signal.SIGTERM, signal.SIGINT) else self.signal


GUARD = """
import os, select, signal, sys
limit, told, turn_s, rank, silent = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), os.getppid(), 0
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
while silent < limit:
    if not select.select([0], [], [], turn_s)[0]:
        silent += 1
        continue
    words = os.read(0, 4096)
    if not words:
        sys.exit()
    silent, limit = 0, told if b"!" in words else limit
if os.getppid() == rank:
    os.kill(rank, signal.SIGKILL)
"""


def _guard(limit, told, turn_s):
    """Start what kills this process after `limit` turns without a word from its watch, `told` once it was told to end.

    Code that lets no other thread run may do so for a moment when a signal comes: enough for a word, not for the end.
    """
    words = map(str, (limit, told, turn_s))
    return subprocess.Popen([sys.executable, "-S", "-E", "-c", GUARD, *words], stdin=subprocess.PIPE)
