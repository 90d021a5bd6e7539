"""Threads that take turns: one rank runs at a time, and hands on when it must wait, always in the same order.

    rank 0  ──run──┐ waits for all_reduce          ┌──run──
    rank 1         └──run──┐ waits too              │         the last one to call completes it, and makes
    rank 2                 └──run, completes it─────┘         the ranks that wait ready, in the order of ranks

So results, bytes and simulated times are the same in every run. When no rank is ready and some wait, none ever will:
that is a deadlock, seen at once.
"""

from _thread import allocate_lock  # beneath those of `threading`, which let other ranks run
from collections import deque

from simgpu.ranks.errors import DeadlockError, Stopped
from simgpu.torch_glue.here import here


class Scheduler:
    """Lets ranks take turns, and sees a deadlock at once: threads of which one runs at a time.

    They start in the order of their numbers.

    Args:
        size: The number of ranks.
        explain: A function that is given all works that are waited for and returns a deadlock's message.
    """

    def __init__(self, size, explain):
        self.running = None
        self._waiting, self._ready, self._explain = {}, deque(range(size)), explain
        self._ended, self._deadlock = False, None
        self.moves = 0  # how often a rank has got on: called a collective, returned, or found what it waited for
        self._turns = [allocate_lock() for _ in range(size)]  # locked unless it is the rank's turn
        self._lock = allocate_lock()
        for turn in self._turns:
            turn.acquire()

    def start(self):
        """Let the first rank run."""
        with self._lock:
            self._pass()

    def enter(self, rank):
        """Wait for the first turn of a rank; raises Stopped when it will have none."""
        self._turns[rank].acquire()
        self.check()

    def wait(self, rank, work, process):
        """Let others run until a rank's work is done.

        Args:
            rank: Its number.
            work: What it waits for.
            process: The rank's `process.Process`, put aside meanwhile.

        Raises:
            DeadlockError: It never will be.
            Stopped: Another rank failed.
        """
        self.check()
        process.leave()
        with self._lock:
            self.moves += 1
            self._waiting[rank] = work
            self._pass()
        self._go_on(rank, process)

    def rest(self, rank, process):
        """Let the others that are ready run first, for a rank that asks again and again for what one of them does.

        Returns:
            Whether there were any.
        """
        self.check()
        if not self._ready:
            return False
        process.leave()
        with self._lock:
            self._ready.append(rank)
            self._pass()
        self._go_on(rank, process)
        return True

    def waiting(self):
        """Return the works that ranks wait for."""
        return list(self._waiting.values())

    def _go_on(self, rank, process):
        self._turns[rank].acquire()
        process.enter()
        self.check()

    def done(self, rank, work):
        """Make `rank` ready if it waits for `work`."""
        with self._lock:
            if self._waiting.get(rank) is work:
                del self._waiting[rank]
                self._ready.append(rank)

    def leave(self, rank):
        """Hand on for good: the rank's function has returned or raised. Doing it again changes nothing."""
        with self._lock:
            if self.running == rank:
                self.moves += 1
                self._pass()

    def tell(self, function):
        """Call a function with the number of the rank that runs, if one does, which cannot hand on meanwhile."""
        with self._lock:
            if self.running is not None:
                function(self.running)

    def stop(self):
        """End all ranks: each raises Stopped at its next turn, or when it is to wait."""
        with self._lock:
            self._ended = True
            self._wake_all()

    def check(self):
        """Raise Stopped or DeadlockError where the rank that runs is to go no further."""
        if self._ended:
            raise Stopped
        if self._deadlock:
            raise DeadlockError(self._deadlock)

    def ready(self):
        """Return the ranks that would run next."""
        return list(self._ready)

    def expire(self, moment, works=None):
        """End those of the works, by default of all, that are waited for and whose time was over at that picosecond."""
        with self._lock:
            for work in self._limited():
                if work.deadline < moment and (works is None or work in works):
                    self._expire(work)

    def _limited(self):
        return [work for work in self._waiting.values() if work.deadline is not None]

    def _expire(self, work):
        self.moves += 1
        for ended in work.expire(self._explain(list(self._waiting.values()))):
            if self._waiting.get(ended.rank) is ended:
                del self._waiting[ended.rank]
                self._ready.append(ended.rank)

    def _pass(self):
        if not self._ready and self._limited():
            self._expire(min(self._limited(), key=lambda work: (work.deadline, work.rank)))
        elif not self._ready and self._waiting:
            self._deadlock = self._explain(list(self._waiting.values()))
            self._wake_all()
        self.running = self._ready[0] if self._ready else None
        if self._ready:
            del self._ready[0]  # no call, after which Ctrl-C may end this thread, before the rank has its turn
            self._turns[self.running].release()

    def _wake_all(self):
        self._ready.extend(sorted(self._waiting))
        self._waiting.clear()


class Wait:
    """A rank that is blocked on something other than a collective; used in deadlock messages.

    Args:
        owner: The `rank.Rank`.
        call: What waits, in words.
        reason: What for.
        seconds: How long the program is ready to wait, in simulated time; None for ever.

    Attributes:
        deadline: The picosecond at which it ends in any case, or None.
        expired: What a deadlock's message would have said when it ended so, or None.
    """

    def __init__(self, owner, call, reason, seconds=None):
        self.owner, self.rank, self.call, self._reason = owner, owner.number, call, reason
        self.deadline, self.expired = owner.deadline(seconds), None

    def expire(self, told):
        """Note that its time is over; return what ends with it."""
        self.expired = told
        return [self]

    def end(self):
        """Let the rank go on."""
        self.owner.world.scheduler.done(self.rank, self)

    def lacks(self):
        """Return why it waits, in words."""
        return self._reason


class RankLock:
    """A lock that a rank may take several times; one that waits for it lets the others run.

    Args:
        call: What is done while it is held, in words.
    """

    def __init__(self, call):
        self._call, self._holder, self._depth, self._waiting = call, None, 0, deque()

    def __enter__(self):
        rank = here()
        if self._holder not in (None, rank):
            self._waiting.append(Wait(rank, self._call, f"in which rank {self._holder.number} is"))
            rank.wait(self._waiting[-1])
        self._holder = rank
        self._depth += 1

    def __exit__(self, *error):
        self._depth -= 1
        if self._depth == 0:
            self._holder = self._waiting[0].owner if self._waiting else None
            if self._waiting:
                self._waiting.popleft().end()
