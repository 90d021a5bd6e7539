"""The seam to torch: what is replaced there, that it is put back, and what happens where torch lacks a name."""

import ast
import importlib
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import simgpu
from simgpu.torch_glue import feature, features, install

ROOT = Path(__file__).resolve().parents[2]
# Private names of torch that the device type itself cannot do without, as torch_openreg's C++ code has them.
DEVICE = set(
    """_C _acc _autograd _cdata _dispatch_has_kernel_for_dispatch_key _disabled_torch_function_impl _functions
    _higher_order_ops _make_wrapper_subclass _op _pytree _rebuild_parameter _rebuild_tensor_v2 _reduce_ex_internal
    _schema _set_conj _set_neg _set_throw_on_mutable_data_ptr _str _subclasses _swap_tensor_impl _tensor_str
    _utils""".split()  # noqa: SIM905 read as a list of words
)
PYTHONS = {"_replace", "_bootstrap", "_clear_cache"}  # of named tuples, importlib and logging


def total(rank):
    """Return the sum of what the ranks give."""
    x = torch.full((1,), rank + 1.0, device="sim")
    dist.all_reduce(x)
    return x.item()


# What older torch cannot do, and says so: see the table.
REFUSED = {"torch.compile inside simgpu.as_cuda"} if feature.NUMBERS < (2, 12) else set()


def loaded():
    """Load what the features are about, and return those whose library is there."""
    found = []
    for row in features.FEATURES:
        try:
            importlib.import_module(row.trigger)
        except ImportError:
            assert not row.trigger.startswith("torch"), row
        else:
            found.append(row)
    return found


def test_every_name_of_the_table_is_in_this_torch():
    rows = loaded()
    assert {row.name for row in rows if feature.missing(row)} == REFUSED
    entries = [feature.bare(entry) for row in rows for entry in row.entries.split()]
    assert [entry for entry in entries if not feature.is_there(entry)] == []


def test_every_maker_of_the_table_is_there():
    makers = {
        maker for row in loaded() for maker in (*row.always.values(), *row.in_spawn.values(), *row.own.values())
    } | {getattr(row, call) for row in features.FEATURES for call in ("once", "around_spawn", "in_rank")} - {""}
    for maker in makers:
        file, _, function = maker.partition(".")
        assert callable(getattr(importlib.import_module(f"simgpu.torch_glue.{file}"), function)), maker


def test_the_report_names_each_feature_and_what_is_missing(monkeypatch):
    assert all(
        re.search(rf"(?m)^{re.escape(row.name)} +(yes|no: there is no)", str(simgpu.features()))
        for row in features.FEATURES
        if row.name not in REFUSED
    )
    monkeypatch.delattr(torch.distributed.fsdp._init_utils, "_get_device_from_device_id")
    lines = [line for line in str(simgpu.features()).splitlines() if " no: torch" in line]
    lines = [line for line in lines if not line.startswith(tuple(REFUSED))]
    assert len(lines) == 1, lines
    assert re.match("FSDP1 .*_get_device_from_device_id", lines[0])


# -- what is put back ------------------------------------------------------------------------------------------------


def there():
    """Return the objects of torch whose names the table replaces, each with what it holds."""
    owners = [torch, torch.Tensor, torch.cuda, torch.cuda.memory, torch.UntypedStorage, dist, dist.Backend, install]
    for row in features.FEATURES:
        for name in filter(None, map(feature.bare, row.names())):
            if "::" not in name and feature.is_there(name):
                owners.append(feature.find(name)[0])
    held = [(owner, dict(vars(owner))) for owner in {id(owner): owner for owner in owners}.values() if is_open(owner)]
    return held, signal.getsignal(signal.SIGINT), list(sys.meta_path)


def is_open(owner):
    """Return whether an object has a dictionary of its own."""
    return hasattr(owner, "__dict__")


def differences(before):
    """Return what is another object than `before`, by name."""
    held, *others = before
    names = [
        f"{getattr(owner, '__name__', owner)}.{name}"
        for owner, found in held
        for name in {*found, *vars(owner)}
        if found.get(name) is not vars(owner).get(name) and name != "__warningregistry__"
    ]
    return sorted(names) + [other for other in others if other not in (signal.getsignal(signal.SIGINT), sys.meta_path)]


def test_torch_is_as_it_was_after_ranks(gpus):
    loaded(), simgpu.spawn(total)
    before = there()
    assert simgpu.spawn(total) == [10.0] * 4
    assert differences(before) == []
    with pytest.raises(simgpu.RankError):
        simgpu.spawn(lambda rank: 1 / 0)
    assert differences(before) == []


def test_torch_is_as_it_was_after_as_cuda(gpus):
    loaded()
    before = there()
    with simgpu.as_cuda():
        torch.ones(2).cuda()
    assert differences(before) == []


def test_torch_is_as_it_was_after_disable_but_for_what_keeps_the_device_types_name(gpus):
    loaded(), simgpu.disable()
    handler, before = signal.signal(signal.SIGINT, signal.default_int_handler), there()
    try:
        simgpu.enable(2)
        assert differences(before)
        assert simgpu.spawn(total) == [3.0, 3.0]
        torch.ones(2, device="sim:1")
        simgpu.disable()
        assert differences(before) == []
    finally:
        signal.signal(signal.SIGINT, handler)


def test_a_clock_asks_for_values_only_while_a_mode_fuses():
    simgpu.enable(1)
    assert not simgpu.clock().fuses
    with simgpu.clock().run_as("compiled"):
        assert simgpu.clock().fuses
    assert not simgpu.clock().fuses


# -- a torch that lacks something, and another torch -----------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("which", ["first", pytest.param("all", marks=pytest.mark.long)])
def test_a_name_that_torch_renames_costs_its_feature_alone(which):
    program = [sys.executable, str(Path(__file__).with_name("without_names.py")), which]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert re.fullmatch(r"\d{2,} names, 0 failed\n", done.stdout), done.stdout + done.stderr


def test_without_a_core_name_nothing_is_enabled(monkeypatch, gpus):
    simgpu.disable()
    monkeypatch.delattr(torch._C, "_swap_tensor_impl")
    with pytest.raises(RuntimeError, match=f"torch {feature.VERSION} has no torch._C._swap_tensor_impl"):
        simgpu.enable(2)
    assert not simgpu.is_enabled()


def test_without_a_name_of_process_groups_ranks_say_so(monkeypatch, gpus):
    simgpu.disable()
    monkeypatch.delattr(dist.distributed_c10d, "_new_process_group_helper")
    simgpu.enable(2)
    with pytest.raises(RuntimeError, match=r"process groups is not available.*_new_process_group_helper"):
        simgpu.spawn(total)
    simgpu.disable()


def test_a_torch_that_was_not_tried_is_told_once(monkeypatch, gpus):
    simgpu.disable()
    monkeypatch.setattr(install, "NUMBERS", (3, 0))
    with pytest.warns(UserWarning, match="tried with torch"):
        simgpu.enable(2)
    simgpu.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simgpu.enable(2)


# -- when features are installed -------------------------------------------------------------------------------------


@pytest.mark.process
def test_features_come_when_torch_loads_what_they_are_about():
    path = Path(__file__).with_name("programs") / "features_come_late.py"
    done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["[]", "True True True 64.0", "None None"], done.stdout + done.stderr


# -- private names ---------------------------------------------------------------------------------------------------


def names_of_torch():
    """Return all names that torch's modules and classes have, and those that only its operations have."""
    found = {"_schema", "_op"}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "torch":
            found.update(name.split("."), vars(module))
            found.update(*(vars(thing) for thing in vars(module).values() if isinstance(thing, type)))
    return found


TORCHS = names_of_torch()


def private_names(path, defined):
    """Return the private names that a file uses: attributes that simgpu does not define, and imports from torch."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in defined and ast.unparse(node.value) != "torch.ops":
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", None) or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            found.update(part for name in names if name.lstrip(".").startswith("torch") for part in name.split("."))
    private = {name for name in found if name.startswith("_") and not name.startswith("__")}
    operations = {name for name in private if hasattr(torch.ops.aten, name)}  # these are not Python's to hide
    return (private & TORCHS) - operations - PYTHONS


@pytest.fixture(scope="module")
def private():
    """The private names of torch that each room of simgpu uses."""
    files, defined, used = sorted((ROOT / "simgpu").rglob("*.py")), set(), {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and path.name != "features.py":
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.update(() if ast.unparse(node).startswith("torch.") else {node.attr})
    for path in files:
        used.setdefault(path.relative_to(ROOT / "simgpu").parts[0], set()).update(private_names(path, defined))
    return used


def test_private_names_of_torch_stand_in_one_room(private):
    allowed = {"device": DEVICE, "torch_glue": private["torch_glue"], "accounting": {"_schema"}}  # what ``out=`` names
    assert {room: more for room, names in private.items() if (more := names - allowed.get(room, set()))} == {}
    assert DEVICE - private["device"] == set(), "names that nobody uses any more"


def test_the_table_lists_every_private_name_that_is_used(private):
    names = [name for row in loaded() for name in (*row.names(), *row.entries.split())]
    listed = {part for name in names for part in re.split("::|[.]", feature.bare(name) or "")}
    used = private["device"] | private["torch_glue"]
    assert used - listed == set()


@pytest.mark.parametrize("room", ["hardware", "accounting"])
def test_the_lowest_rooms_set_no_attribute_of_torchs(room):
    for path in (ROOT / "simgpu" / room).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                on_result = any(
                    isinstance(part, ast.Call) for part in ast.walk(node.value)
                )  # such as a tensor's storage
                assert not on_result, f"{path.name}: {ast.unparse(node)}"
                assert not ast.unparse(node).startswith("torch."), f"{path.name}: {ast.unparse(node)}"
            assert not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr")), path.name
