"""Gradients summed over replicas while backward still runs: buckets, hooks, and a second stream on every device.

    backward   ▐ layer 4 ▌▐ layer 3 ▌▐ layer 2 ▌▐ layer 1 ▌            gradients come last layer first, and so are the
    side                            ▐ bucket 0 ▌       ▐ bucket 1 ▌    buckets: a full one goes beside what is left

As PyTorch's DistributedDataParallel does it (Li et al. 2020, section 3.2), for replicas in one process.
"""

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from weakref import WeakMethod, finalize

from d2lmini.collectives.buckets import plan_buckets, reduce_bucket
from d2lmini.collectives.executor import sum_tensors
from d2lmini.devices import streams


class OverlappedAllreduce:
    """Give every replica the sum of all replicas' gradients, a bucket as soon as all have finished it.

        reducer = OverlappedAllreduce(replicas, bucket_bytes=2**20)
        for loss in losses:
            loss.backward()       # the last of these starts the all-reduces
        reducer.finish()          # now p.grad is the sum, everywhere

    Its hooks work as long as the object, or its `finish`, is kept somewhere, and go with it. A parameter that has a
    gradient in no replica is left alone.

    Args:
        replicas: Lists of parameters, alike, one list a device.
        bucket_bytes: The most bytes of gradients in a bucket, unless one alone has more.
        allreduce: A function that replaces each tensor of a list, one a device, by the sum.
        always: Whether every backward pass starts all-reduces, or only those in ``with reducer.sending():``. Where
            several batches make one update, all but the last only add to the gradients.

    Raises:
        RuntimeError: A replica has run backward twice before `finish`.
    """

    def __init__(self, replicas, bucket_bytes=25 * 2**20, allreduce=sum_tensors, always=True):
        """Plan the buckets, last parameter first, and hang a hook onto every parameter."""
        self.replicas, self.allreduce = [list(params)[::-1] for params in replicas], allreduce
        self.buckets = plan_buckets(self.replicas[0], bucket_bytes)  # lists of places in a replica
        self.devices = [params[0].device for params in self.replicas]
        self.sides = {device: streams(device).Stream(device) for device in self.devices if streams(device)}
        self.always = self._on = always
        self._lock = threading.Lock()  # autograd has a thread for each GPU, and all of them call hooks
        # Through a weak reference: hooks that held this object, and so the parameters, would keep both alive for ever.
        self.hooks = [
            params[place].register_post_accumulate_grad_hook(partial(_call, WeakMethod(self._ready), rank, number))
            for rank, params in enumerate(self.replicas)
            for number, bucket in enumerate(self.buckets)
            for place in bucket
        ]
        finalize(self, _remove, self.hooks).atexit = False
        self._restart()

    @contextmanager
    def sending(self, now=True):
        """Let the backward passes inside start all-reduces, or not now; `finish` comes afterwards."""
        self._restart()
        self._on = now
        try:
            yield
        finally:
            self._on = self.always

    def finish(self):
        """Reduce the buckets that some replica left unfinished, and let the devices wait for all of them."""
        for number, marks in enumerate(self._marks):
            if len(marks) < len(self.replicas):
                self._reduce(number, [_mark(device) for device in self.devices])
        for device, side in self.sides.items():
            streams(device).current_stream(device).wait_stream(side)
        self._restart()

    def _restart(self):
        """Wait for every gradient of every bucket anew. A mark says when a replica's stream is past a bucket."""
        self._kept = []  # gradients whose memory a side stream may still be reading
        self._missing = [[len(bucket) for bucket in self.buckets] for _ in self.replicas]
        self._marks = [{} for _ in self.buckets]

    def _ready(self, rank, number, parameter):
        """Called by autograd with the parameter, when its gradient, ``parameter.grad``, is complete."""
        if not self._on:
            return
        with self._lock:
            self._missing[rank][number] -= 1
            if self._missing[rank][number] < 0:
                raise RuntimeError(f"rank {rank} ran backward twice: call finish() after each step's backward")
            if self._missing[rank][number] == 0:
                self._marks[number][rank] = _mark(self.devices[rank])
                if len(self._marks[number]) == len(self.replicas):
                    self._reduce(number, [self._marks[number][rank] for rank in range(len(self.replicas))])

    def _reduce(self, number, marks):
        """Queue a bucket's all-reduce in the side streams: after the marks, beside what the devices do after them."""
        rows = [[params[place] for params in self.replicas] for place in reversed(self.buckets[number])]
        columns = list(zip(*(row for row in rows if any(p.grad is not None for p in row))))  # one a replica
        if not columns:
            return
        with ExitStack() as stack:
            for device, mark in zip(self.devices, marks):
                if mark:
                    self.sides[device].wait_event(mark)
            for device, side in self.sides.items():
                stack.enter_context(streams(device).stream(side))
            self._kept.append([p.grad for column in columns for p in column])
            reduce_bucket(columns, self.allreduce)


def _call(method, *details):
    method = method()
    if method is not None:
        method(*details)


def _remove(hooks):
    for hook in hooks:
        hook.remove()


def _mark(device):
    return streams(device) and streams(device).current_stream(device).record_event()
