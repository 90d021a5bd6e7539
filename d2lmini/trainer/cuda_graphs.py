"""A whole step of training as one CUDA graph: forward pass, backward and update, queued with a single launch.

    first batch of a size    the step as it is: libraries set themselves up, and the optimiser makes its state
    second                   recorded: the GPU computes nothing, its work is written down with the memory that it uses
    from then on             the batch is copied to where the recording reads it, replayed, and the losses copied out

A replay repeats what the GPU did, and nothing that Python did. So a recording serves only as long as the tensors lie
where they lay, and the optimiser's settings, such as its learning rate, and the switches and rates of modules, such as
``training``, are what they were; after that it is made anew. What else a module does in Python, and hooks, happen once
a recording.

Source: "Whole-network capture" in PyTorch's notes on CUDA semantics.
"""

import warnings
from contextlib import contextmanager
from functools import partial
from itertools import chain

import torch

from d2lmini.trainer.errors import first_line

_SWITCHES = (bool, float)  # of a module, such as ``training`` or a dropout's p; an int may well count calls


def record_steps(engine):
    """Let an engine's `learn` be recorded and replayed, if ``settings.cuda_graph`` asks for it."""
    if engine.settings.cuda_graph:
        engine.learn = Recorded(engine.learn, partial(facts, engine), CudaRecorder(engine.comm.devices[0]))


class Recorded:
    """A function of a batch that is recorded for each size of batch, and then replayed.

    learn: what to record; it returns pairs (size, loss). facts: returns what must be as it was for a replay to be
    right. recorder: see `CudaRecorder`.
    """

    def __init__(self, learn, facts, recorder):
        self.learn, self.facts, self.recorder = learn, facts, recorder
        self._valid, self._recordings = None, {}  # sizes -> None for those that came once, then a recording

    def __call__(self, X, y):
        """Learn from a batch and return its pairs (size, loss), the losses in memory of their own."""
        valid, sizes = self.facts(), (X.shape, X.dtype, y.shape, y.dtype)
        if valid != self._valid:
            self._valid, self._recordings = valid, {}
        if sizes not in self._recordings:
            with self.recorder.beside(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*without CUDA graph capture")  # an optimiser's, once
                shards = self.learn(X, y)
            self._recordings[sizes] = None
            return shards
        if self._recordings[sizes] is None:
            places = [tensor.to(self.recorder.device, copy=True) for tensor in (X, y)]  # where it reads its batch from
            self._recordings[sizes] = places, *self.recorder.record(self.learn, *places)
        places, replay, shards = self._recordings[sizes]
        for place, given in zip(places, (X, y), strict=True):
            place.copy_(given)
        replay()
        return [(size, loss.clone()) for size, loss in shards]


class CudaRecorder:
    """Records what is queued on a CUDA GPU, in a stream of its own."""

    def __init__(self, device):
        self.device, self.stream = device, torch.cuda.Stream(device)

    @contextmanager
    def beside(self):
        """Run what is inside in the stream that records, since libraries set themselves up for each stream anew."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def record(self, function, *tensors):
        """Return a function that replays what ``function(*tensors)`` queues, and what that returned.

        Raises RuntimeError where something inside cannot be recorded, such as waiting for the GPU.
        """
        graph = torch.cuda.CUDAGraph()
        # "thread_local": a thread that pins batches for a DataLoader meanwhile does no harm.
        recording = torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local")
        try:
            with self.beside(), recording:
                returned = function(*tensors)
        except RuntimeError as error:
            raise RuntimeError(f"the step cannot be recorded as a CUDA graph: {_cause(error)}: leave cuda_graph "
                               "out, or do in a step nothing that waits for the GPU") from error  # fmt: skip
        return graph.replay, returned


def facts(engine):
    """Return where the tensors of an engine with one replica lie, and the settings of its optimiser and modules.

    Raises ValueError for an optimiser that keeps a tensor, such as its count of steps, in the host's memory.
    """
    model, loss, optimizer = engine.modules[0], engine.losses[0], engine.optimizers[0]
    if not model.training:
        model.train()  # as the step would, which a replay does not
    kept = [value for state in optimizer.state.values() for value in state.values()]
    for value in kept:
        if isinstance(value, torch.Tensor) and value.device != engine.comm.devices[0]:
            raise ValueError(f"cuda_graph: {type(optimizer).__name__} counts its steps in "
                             "host memory, which a CUDA graph leaves alone: make it with capturable=True")  # fmt: skip
    settings = [value for group in optimizer.param_groups for name, value in group.items() if name != "params"]
    modules = chain(model.modules(), loss.modules() if isinstance(loss, torch.nn.Module) else ())
    return [_fact(value) for value in (*kept, *settings, *chain.from_iterable(map(_own, modules)))]


def _own(module):
    """Return what a module has itself, without the modules in it: its tensors and its switches."""
    switches = [value for value in vars(module).values() if type(value) in _SWITCHES]
    return (*module._parameters.values(), *module._buffers.values(), *switches)


def _fact(value):
    return (value.data_ptr(), value.requires_grad) if isinstance(value, torch.Tensor) else value


def _cause(error):
    """Return the first line of the error that came first: the end of a recording that failed raises another one."""
    while error.__context__ is not None:
        error = error.__context__
    return first_line(error)
