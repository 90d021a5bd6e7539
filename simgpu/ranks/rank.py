"""One rank: its device, its turn, its communication streams, and what its device must still wait for."""

import contextlib
import threading
from collections import Counter

import torch

from simgpu.accounting import communication
from simgpu.accounting.allocator import Running
from simgpu.accounting.clock import Clock
from simgpu.accounting.queues import PS
from simgpu.device.tensor import storage_id
from simgpu.ranks import seeds
from simgpu.ranks.process import Process
from simgpu.torch_glue.here import enter


class Rank:
    """Rank `number` of `world`, on GPU `device` of a node whose GPUs are `gpus`."""

    def __init__(self, number, device, world, clock, gpus):
        self.number, self.device, self.world, self.clock = number, device, world, clock
        own = seeds.gpus_of(number, gpus, world.seed)
        environment = self._environment(len(gpus)) if world.joined or world.is_first else {}
        self.process = Process(environment, own, number - device)
        self.slept, self.slept_since = 0.0, 0.0  # seconds in which it has only slept; when it began to
        self.left_at = 0  # the picosecond at which it let others run
        self.thread, self.ended = None, False
        self.blocked = None  # what its thread waits for that is neither collective nor store, in words
        self.start_children = lambda: None  # starts the processes that it has made, where they are ranks
        self.warned = set()  # what has been shown, by `warned`
        self.program_joined = False  # whether the program has called init_process_group
        self.groups = Counter()  # how often the rank has made a group of that name and those ranks
        self.stands_for = None  # the GPU that the host's tensors stand for that a group is handed, or None
        self.in_batch = False  # whether its messages go out together
        self.region = None  # where torch.compile keeps what it has compiled for the rank, from the first time on
        self._streams, self._backward, self._arriving = {}, {}, {}

    def _environment(self, each):
        """Return what torchrun sets for a process of this rank; each: how many GPUs a node has."""
        first, size = self.number - self.device, self.world.size
        texts = {
            "RANK": self.number,
            "LOCAL_RANK": self.device,
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": min(each, size - first),
            "GROUP_RANK": first // each,
            "GROUP_WORLD_SIZE": -(-size // each),
            "ROLE_NAME": "default",
            "ROLE_RANK": self.number,
            "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": "simulated",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        return {name: str(text) for name, text in texts.items()}

    def begin(self):
        """Make the calling thread this rank's."""
        self.process.enter()
        Running.process.rank = self.number
        self.thread = threading.get_ident()
        enter(self)
        if self.clock is not None:
            communication.begin(self.clock, self.number, self.world.began)
        seeds.seed(self.number, self.world.seed)

    def wait(self, work):
        """Let the other ranks run until `work` is done."""
        self.check_thread(work.call)
        self.slept = 0.0
        self.world.scheduler.wait(self.number, work, self.process)
        if work.expired and self.clock is not None:
            self.clock.wait_until(work.deadline, str(work.call))

    def rest(self):
        """Let the other ranks run before the next thing is looked at; return whether any was ready."""
        self.left_at = self.now_ps()
        return self.world.scheduler.rest(self.number, self.process)

    def deadline(self, seconds):
        """Return the picosecond that is so many seconds from now; None for None."""
        return None if seconds is None else self.now_ps() + round(seconds * PS)

    def now_ps(self):
        """Return the rank's own time, 0 where there is no clock."""
        return 0 if self.clock is None else self.clock.now_ps()

    def check_thread(self, call):
        """Raise RuntimeError unless the calling thread is the rank's."""
        if threading.get_ident() != self.thread:
            raise RuntimeError(
                f"{call}: expected the thread of rank {self.number}, got one beside it, which has no "
                "turn among the ranks"
            )

    def gpu(self, call):
        """Return the number, among all GPUs, of the one that a call's tensors are on; the rank's own where on none."""
        return self.number if call.device is None else self.number - self.device + call.device

    def stream(self, name, gpu):
        """Return a GPU's communication stream for a group or a pair, as NCCL has one for each communicator."""
        if (name, gpu) not in self._streams:
            self._streams[name, gpu] = Clock.stream(self.clock, gpu)  # of all GPUs, whichever rank asks
        return self._streams[name, gpu]

    def depart(self, call):
        """Return the moment at which a call may begin: after what the device's current stream holds.

        For the host's own tensors that is at once; a barrier has none.
        """
        self.check_thread(call)
        if self.clock is None:
            return 0
        if call.on_host and "barrier" not in call.name:
            return self.clock.now_ps()
        return communication.depart(self.clock, self._local(call))

    def join(self, end, call):
        """Let the current stream wait until `end`; for the host's own tensors the host waits."""
        if self.clock is None:
            return
        if call.on_host or call.name == "barrier":  # NCCL's wait for it synchronises the stream
            self.clock.wait_until(end, str(call))
        else:
            communication.hold(self.clock, self.clock.current_stream(self._local(call)), end)

    def leave_for_backward(self, end, call, result):
        """Note what the end of the backward pass waits for: DDP's gradients, whose Futures C++ code holds.

        result: A tensor or a list of them, which DDP copies out of before that end: `before_copy` then waits.
        """
        device = self._local(call)
        self._backward[device] = max(self._backward.get(device, 0), end)
        for tensor in [result] if isinstance(result, torch.Tensor) else result or ():
            if not call.on_host:
                self._arriving[storage_id(tensor)] = device, end

    def before_copy(self, source):
        """Let the current stream wait for what is copied, if a Future is still to bring it."""
        arriving = self._arriving.get(storage_id(source)) if self._arriving else None
        if self.clock is not None and arriving:
            device, end = arriving
            communication.hold(self.clock, self.clock.current_stream(device), end)

    def arrived(self, device):
        """Return the moment at which all that was left for the end of the backward pass is there."""
        return self._backward.get(device, 0)

    def end_backward(self):
        """Let the current streams wait for what was left."""
        if self.clock is not None:
            for device, end in self._backward.items():
                communication.hold(self.clock, self.clock.current_stream(device), end)
            self._backward.clear()
            self._arriving.clear()

    @contextlib.contextmanager
    def beside(self, end, call):
        """Make a stream of its own current, which waits until `end`; None where there is no clock."""
        if self.clock is None:
            yield None
            return
        stream, before = self.stream("callbacks", self.gpu(call)), self.clock.current_stream(self._local(call))
        communication.hold(self.clock, stream, end)
        self.clock.set_stream(stream)
        try:
            yield stream
        finally:
            self.clock.set_stream(before)

    def _local(self, call):
        """Return the index of a call's GPU on the rank's node."""
        return self.device if call.device is None else call.device

    def reached(self, stream, otherwise):
        """Return the end of what `stream` holds."""
        return otherwise if stream is None else stream.end
