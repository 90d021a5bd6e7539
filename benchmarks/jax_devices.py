"""What JAX's device functions answer on four forced devices of one host: writes chapters/data/jax_devices.json.

JAX is no dependency of the book. In an environment of its own:  pip install jax && python benchmarks/jax_devices.py
"""

import datetime
import json
import os
import platform
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

OUT = Path(__file__).resolve().parents[1] / "chapters" / "data" / "jax_devices.json"


def places(x):
    """Return the names of the devices that hold an array, in order."""
    return ", ".join(sorted(str(shard.device) for shard in x.addressable_shards))


def all_reduces(function, *arrays):
    """Return how many all-reduces the compiler puts into a jitted function of these arrays."""
    return function.lower(*arrays).compile().as_text().count(" all-reduce(")


def answer(function):
    """Return what a call gives as text, or the first sentence of its error."""
    try:
        return str(function())
    except ValueError as error:
        return f"{type(error).__name__}: {str(error).partition('. ')[0]}"


def main():
    """Ask, print and store."""
    devices, free = jax.devices(), jnp.ones((2, 3))
    on_1, on_2 = (jax.device_put(free, device) for device in devices[1:3])
    again = jax.device_put(on_1, devices[1])
    mesh = jax.make_mesh((4,), ("rank",))
    rows_apart, everywhere = (NamedSharding(mesh, spec) for spec in (PartitionSpec("rank"), PartitionSpec()))
    spread = jax.device_put(jnp.arange(8.0), rows_apart)
    examples = jax.device_put(jnp.ones((8, 3)), rows_apart)
    weight = jax.device_put(jnp.ones(3), everywhere)
    double = jax.jit(lambda x: 2 * x)
    gradient = jax.jit(jax.grad(lambda weight, examples: jnp.mean((examples @ weight) ** 2)))
    by_hand = jax.shard_map(
        lambda part: jax.lax.psum(part, "rank"),
        mesh=mesh,
        in_specs=PartitionSpec("rank"),
        out_specs=PartitionSpec(),
    )
    rows = [
        ("jax.devices()", lambda: ", ".join(map(str, devices))),
        ("places of free = jnp.ones((2, 3))", lambda: places(free)),
        ("free.committed", lambda: free.committed),
        ("jax.device_put(free).committed", lambda: jax.device_put(free).committed),
        ("places of on_1 = jax.device_put(free, devices[1])", lambda: places(on_1)),
        ("on_1.committed", lambda: on_1.committed),
        ("again = jax.device_put(on_1, devices[1]) is on_1", lambda: again is on_1),
        ("again has the memory of on_1", lambda: again.unsafe_buffer_pointer() == on_1.unsafe_buffer_pointer()),
        ("places of free + on_1", lambda: places(free + on_1)),
        ("on_1 + on_2", lambda: places(on_1 + on_2)),
        ("places of double(on_1), a jitted function", lambda: places(double(on_1))),
        ("places of x = jnp.arange(8.0), spread by a mesh of 4", lambda: places(spread)),
        ("shape of its part on each", lambda: spread.addressable_shards[0].data.shape),
        ("its sum", lambda: jnp.sum(spread)),
        ("places of double(x)", lambda: places(double(spread))),
        ("all-reduces in the compiled double(x)", lambda: all_reduces(double, spread)),
        ("all-reduces in the compiled gradient(weight, examples)", lambda: all_reduces(gradient, weight, examples)),
        ("places of that gradient", lambda: places(gradient(weight, examples))),
        ("shape of the gradient on each", lambda: gradient(weight, examples).addressable_shards[0].data.shape),
        ("total, the sum of the parts of x by hand", lambda: by_hand(spread)),
    ]
    where = f"measured on {platform.machine()}, JAX {jax.__version__}, 4 forced host devices, {datetime.date.today()}"
    record = {"where": where, "rows": [[what, answer(ask)] for what, ask in rows]}
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
