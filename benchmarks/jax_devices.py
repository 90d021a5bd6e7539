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
    mesh = NamedSharding(jax.make_mesh((4,), ("rank",)), PartitionSpec("rank"))
    spread = jax.device_put(jnp.arange(8.0), mesh)
    rows = [
        ("jax.devices()", lambda: ", ".join(map(str, devices))),
        ("places of free = jnp.ones((2, 3))", lambda: places(free)),
        ("free.committed", lambda: free.committed),
        ("places of on_1 = jax.device_put(free, devices[1])", lambda: places(on_1)),
        ("on_1.committed", lambda: on_1.committed),
        ("jax.device_put(on_1, devices[1]) is on_1", lambda: jax.device_put(on_1, devices[1]) is on_1),
        ("places of free + on_1", lambda: places(free + on_1)),
        ("on_1 + on_2", lambda: places(on_1 + on_2)),
        ("places of jnp.arange(8.0), spread by a mesh of 4", lambda: places(spread)),
        ("shape of its part on each", lambda: spread.addressable_shards[0].data.shape),
        ("its sum", lambda: jnp.sum(spread)),
    ]
    where = f"measured on {platform.machine()}, JAX {jax.__version__}, 4 forced host devices, {datetime.date.today()}"
    record = {"where": where, "rows": [[what, answer(ask)] for what, ask in rows]}
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
