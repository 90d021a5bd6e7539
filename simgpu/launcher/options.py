"""What ``simgpu run`` takes: torchrun's options, and those that say which GPUs are simulated and what is reported."""

from dataclasses import replace

from simgpu.hardware import machines
from simgpu.hardware.arguments import find
from simgpu.hardware.links import LINKS

GPU = "A100-SXM4-80GB"  # simulated where neither --gpu nor --machine is given
_NETWORK = "InfiniBand-HDR"  # between nodes put together by hand
_OF_A_NODE = 8  # GPUs of a node on which one rank runs, which may start others itself


def parser():
    """Return the parser of ``simgpu run``: torchrun's, with ours added."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.prog = "simgpu run"
    parser.description = "Run a program on simulated GPUs, in torchrun's manner; its rendezvous is not needed."
    parser.set_defaults(nproc_per_node=None)
    add_machine(parser.add_argument_group("simulated GPUs"))
    group = parser.add_argument_group("how the program runs")
    group.add_argument(
        "--mode", default="eager", help="how steps are run: eager, compiled, or another of the host costs"
    )
    group.add_argument(
        "--shapes-only", "--shapes_only", action="store_true", help="compute nothing: full size, no memory"
    )
    group.add_argument(
        "--host-time", "--host_time", action="store_true", help="leave time.time and its kin as they are"
    )
    group = parser.add_argument_group("what is written")
    group.add_argument("--trace", metavar="FILE", help="the timeline as JSON, for Perfetto")
    group.add_argument("--report", metavar="FILE", help="what the run took, as an HTML page or JSON by FILE's suffix")
    return parser


def add_machine(group):
    """Add the options that name a machine."""
    group.add_argument("--gpu", help=f"a card in hardware.GPUS, by default {GPU}")
    group.add_argument("--link", help="what joins a node's GPUs, by default the card's own")
    group.add_argument("--machine", help="a node in machines.MACHINES; simgpu machines lists them")
    group.add_argument("--memory", help="of each GPU, if not the card's: 40GiB, 512MiB or a number of bytes")
    group.add_argument(
        "--gpus",
        type=int,
        help=f"GPUs of a node, by default as many as ranks, or {_OF_A_NODE} for one rank",
    )


def nodes_of(options):
    """Return the number of nodes, the larger end of torchrun's MIN:MAX. Raises ValueError for anything else."""
    text = str(options.nnodes).split(":")[-1]
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"expected --nnodes as a number of at least 1, got {options.nnodes}")
    return int(text)


def ranks_of(options, gpus):
    """Return the ranks of a node, given its GPUs. Raises ValueError for what is no number, and for more than GPUs."""
    asked = options.nproc_per_node
    if asked is None:
        return 1
    if str(asked) in ("gpu", "auto"):
        return gpus
    if not str(asked).isdigit() or not 1 <= int(asked) <= gpus:
        raise ValueError(
            f"expected --nproc-per-node as a number from 1 to {gpus}, the GPUs of a node, gpu or auto, got {asked}"
        )
    return int(asked)


def machine_of(options, nodes=1):
    """Return the `machines.Machine` or `machines.Cluster` that is simulated. Raises ValueError for unknown names."""
    if options.machine and (options.gpu or options.link or options.gpus):
        raise ValueError("expected --machine, or --gpu, --link and --gpus, which put one together, not both")
    asked = str(getattr(options, "nproc_per_node", None) or 1)
    ranks = int(asked) if asked.isdigit() else 0  # as many as there are GPUs
    if options.machine:
        node = find(machines.MACHINES, options.machine, "machine")
    else:
        node = machines.build(options.gpus or (ranks if ranks > 1 else _OF_A_NODE), options.gpu or GPU, options.link)
    if nodes == 1:
        return node
    node = node if node.adapters else _networked(node)
    return machines.cluster(_part(node, ranks) if 0 < ranks < node.count else node, nodes)


def _part(node, gpus):
    """Return a node of which only the first `gpus` GPUs are used."""
    pairs = tuple(pair for pair in node.pairs if max(pair[0]) < gpus)
    adapters = max(1, node.adapters * gpus // node.count)
    return replace(node, name=f"{gpus} GPUs of {node.name}", count=gpus, pairs=pairs, adapters=adapters)


def _networked(node):
    """Return a node with the network that machines with its card have, an adapter for each GPU."""
    same = [m for m in machines.MACHINES.values() if m.network and m.gpu.name == node.gpu.name]
    return replace(node, network=same[0].network if same else LINKS[_NETWORK], adapters=node.count)


def bytes_of(text):
    """Return the bytes that ``40GiB``, ``512MiB`` or ``1000000`` says, None for None. Raises ValueError for others."""
    if text is None:
        return None
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)):
        number = text.removesuffix(unit).strip()
        if text.endswith(unit) and number.replace(".", "", 1).isdigit():
            return round(float(number) * 2**power)
    raise ValueError(f"expected --memory as 40GiB, 512MiB or a number of bytes, got {text}")
