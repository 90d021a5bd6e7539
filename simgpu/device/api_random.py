"""Random numbers as ``torch.cuda`` offers them: seeds and states of the devices' generators."""

import torch

from simgpu.device.state import index_of, state


def _generator(device):
    return state.gpus[index_of(None if device == "sim" else device)].generator


def manual_seed(seed):
    """Seed the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed):
    """Seed the generators of all devices, in a simulated rank of its own; ``torch.manual_seed`` does so too."""
    for gpu in state.own():
        gpu.generator.manual_seed(int(seed))


def seed():
    """Seed the current device's generator with a random number."""
    _generator(None).seed()


def seed_all():
    """Seed the generators of all devices with one random number."""
    manual_seed_all(torch.Generator().seed())


def initial_seed():
    """Return the seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device="sim"):
    """Return the state of a device's generator, a ByteTensor on the host."""
    return _generator(device).get_state()


def set_rng_state(new_state, device="sim"):
    """Set the state of a device's generator."""
    _generator(device).set_state(new_state)


def get_rng_state_all():
    """Return the states of all generators."""
    return [gpu.generator.get_state() for gpu in state.gpus]


def set_rng_state_all(new_states):
    """Set the states of all generators."""
    for gpu, new_state in zip(state.gpus, new_states, strict=True):
        gpu.generator.set_state(new_state)
