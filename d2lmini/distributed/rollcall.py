"""The processes of one attempt find one another in a store that holds what those of earlier attempts have left.

When torchrun starts processes again it gives them the same store, and no name for the attempt: the count that it gives
is each machine's own, and differs where one machine's processes failed and another's were only told to end.

    rank 0        makes a name for the attempt  ──►  "roll/0": the name, and the tokens it has seen   (again and again)
    rank r > 0    makes a token, "roll/r"       ──►  is my token there? then the name is not an earlier attempt's
"""

import atexit
import json
import threading
import time
import uuid
from contextlib import suppress

LOOK_S = 0.05  # between two looks
LEAVE_S = 5.0  # for the thread at the end: a store that is cut off may not answer at all
WAIT_S = 60.0  # for rank 0, which may have to load torch from a slow disk


def attempt(store, rank, world_size):
    """Return a name that all processes of this attempt agree on, and that no earlier one had.

    Rank 0 goes on answering in a thread, until all have come. Raises TimeoutError where rank 0 does not come.
    """
    token = uuid.uuid4().hex
    if rank:
        return _join(store, rank, token)
    ended = threading.Event()
    task = store.clone(), token, world_size, ended
    thread = threading.Thread(target=_answer, args=task, name="roll call", daemon=True)
    thread.start()
    atexit.register(_end, thread, ended)
    return token


def _end(thread, ended):
    """Let the thread end first: one that is inside torch when the interpreter goes ends the process with SIGABRT."""
    ended.set()
    thread.join(LEAVE_S)


def _join(store, rank, token):
    store.set(f"roll/{rank}", token)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if store.check(["roll/0"]):
            name, tokens = json.loads(store.get("roll/0"))
            if tokens.get(str(rank)) == token:
                store.set(f"{name}/here{rank}", "")
                return name
        time.sleep(LOOK_S)
    raise TimeoutError(f"rank 0 has given no sign of life for {WAIT_S:g} s")


def _answer(store, name, world_size, ended):
    others, tokens = range(1, world_size), None
    with suppress(RuntimeError):  # the store may go while one is still missing: `watch` says so
        while not ended.is_set() and not all(store.check([f"{name}/here{rank}"]) for rank in others):
            there = [rank for rank in others if store.check([f"roll/{rank}"])]
            found = {rank: store.get(f"roll/{rank}").decode() for rank in there}
            if found != tokens:
                store.set("roll/0", json.dumps([name, found]))
                tokens = found
            ended.wait(LOOK_S)
