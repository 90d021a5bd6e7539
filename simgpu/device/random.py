"""Random numbers on simulated GPUs: a generator a device, each giving the CPU's numbers for the same seed."""

import threading
import weakref
from collections.abc import Sequence

import torch

from simgpu.device.state import Device, index_of, state

_lock = threading.Lock()
_made: "weakref.WeakValueDictionary[int, SimGenerator]" = (
    weakref.WeakValueDictionary()
)  # generators by their address: torch hands out other objects for the same one


class SimGenerator(torch._C.Generator):
    """A generator of a simulated GPU."""

    # Before torch 2.13 its generators took no weak references.
    __slots__ = ("_index",) if torch._C.Generator.__weakrefoffset__ else ("_index", "__weakref__")

    @property
    def device(self):
        """The torch.device."""
        return state.gpus[self._index].device

    def clone_state(self):
        """Return a new generator of the device with this one's state."""
        new = make(self._index)
        new.set_state(self.get_state())
        return new

    def __reduce__(self):
        return torch.Generator, (self.device,), super().__reduce__()[2]


def make(index):
    """Return a new generator for device `index`, seeded as torch seeds a new one."""
    generator = SimGenerator()
    generator._index = index
    _made[generator._cdata] = generator
    return generator


def draw(func, call, args, kwargs, index, takes_generator=False):
    """Run an operation that draws random numbers with the device's generator, or the one that was given.

    Args:
        func: The operation.
        call: What runs it.
        takes_generator: Whether that does, even where `func` does not.
    """
    given = kwargs.get("generator")
    for arg in args:
        if isinstance(arg, torch._C.Generator):
            given = arg
    if given is not None:
        if given._cdata not in _made:
            raise RuntimeError("Expected a 'sim' device type for generator but found 'cpu'")
        return call(*args, **kwargs)
    generator = state.gpus[index].generator
    if takes_generator or any(argument.name == "generator" for argument in func._schema.arguments):
        return call(*args, **{**kwargs, "generator": generator})
    return _borrow(generator, call, args, kwargs)


def _borrow(generator, call, args, kwargs):
    """Run an operation that takes no generator while the host's own stands in for the device's."""
    host = torch.default_generator
    with _lock:
        state_of_host = host.get_state()
        host.set_state(generator.get_state())
        try:
            return call(*args, **kwargs)
        finally:
            generator.set_state(host.get_state())
            host.set_state(state_of_host)


# -- what torch.sim offers, as torch.cuda does -----------------------------------------------------------------------


def _generator(device):
    return state.gpus[index_of(None if device == "sim" else device)].generator


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices, in a simulated rank of its own; ``torch.manual_seed`` does so too."""
    for gpu in state.gpus:
        gpu.generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "sim") -> torch.Tensor:
    """Return the state of a device's generator, a ByteTensor on the host."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "sim") -> None:
    """Set the state of a device's generator."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all generators."""
    return [gpu.generator.get_state() for gpu in state.gpus]


def set_rng_state_all(new_states: Sequence[torch.Tensor]) -> None:
    """Set the states of all generators."""
    for gpu, new_state in zip(state.gpus, new_states, strict=True):
        gpu.generator.set_state(new_state)
