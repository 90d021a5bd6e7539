"""Take away one private name of torch after the other, each in a process of its own, and say which features go.

For each name that a feature which is not core needs: it is renamed, as a new torch might; then simulated ranks must
reduce a tensor, and the feature's entries must raise one line that says which feature, which name, which torch.
Prints a line for each name that fails, and how many were tried: of each feature the first; with the argument all, all.
"""

import importlib
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist

import simgpu
from simgpu.torch_glue import feature as names
from simgpu.torch_glue import features, install


def total(rank):
    """Return the sum of the ranks' ones, and what each of the entries raises when it is called."""
    x = torch.ones(1, device="sim")
    dist.all_reduce(x)
    return x.item()


def raised(entries):
    """Return what each entry raises, as text."""
    found = []
    for entry in entries:
        owner, last = names.find(entry)
        try:
            getattr(owner, last)()
            found.append(f"{entry} raised nothing")
        except RuntimeError as error:
            found.append(str(error))
        except Exception as error:
            found.append(f"{entry} raised {error!r}")
    return found


def problem(feature, name):
    """Return what is wrong without the name, or None."""
    owner, last = names.find(name)
    if owner is not torch._dynamo.config:  # which takes no other names
        setattr(owner, f"renamed{last}", getattr(owner, last))
    delattr(owner, last)
    # What ranks have for themselves is found once a process, here before the name went.
    install.OWN[:] = [own for own in install.OWN if (own.owner, own.name) != (owner, last)]
    simgpu.enable(2)
    if simgpu.spawn(total) != [2, 2]:
        return "another sum"
    entries = [names.bare(entry) for entry in feature.entries.split()]
    entries = [entry for entry in entries if entry != name and names.is_there(entry)]
    if feature.where == "ranks":
        said = simgpu.spawn(lambda rank: raised(entries))[0]
    elif feature.where == "GPUs":
        said = raised(entries)
    else:
        with simgpu.as_cuda():
            said = raised(entries)
    wanted = f"{feature.name} is not available on simulated {feature.where}: torch {names.VERSION} has no {name}"
    return next((text for text in said if text != wanted), None if entries else "no entry")


def tried(feature, name):
    """Return the exit status of a process without the name: 0 if all is well."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        wrong = problem(feature, name)
        status = 0 if wrong is None else 1
        if wrong:
            print(f"{feature.name}, without {name}: {wrong}", flush=True)
    except BaseException:
        print(f"{feature.name}, without {name}: {traceback.format_exc(limit=-4)}", flush=True)
    os._exit(status)


def private(name):
    """Return whether a name of the table is no public one of torch."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for row in features.OTHERS:
        if row.trigger.startswith("torch"):
            importlib.import_module(row.trigger)
    simgpu.enable(2)  # what torch cannot take back is done here, and not in each of the processes
    simgpu.disable()
    pairs = [
        (row, names.bare(name))
        for row in features.OTHERS
        if row.trigger.startswith("torch")
        for name in [
            name
            for name in row.names()
            if names.bare(name) and "::" not in name and not name.endswith("?") and private(name)
        ][: None if "all" in sys.argv else 1]
    ]
    failed = sum(tried(*pair) != 0 for pair in pairs)
    print(f"{len(pairs)} names, {failed} failed")
    sys.exit(failed > 0)
