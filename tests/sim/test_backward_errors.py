"""An error in backward: the one that was raised arrives, as on the CPU, and nothing stays on a simulated GPU."""

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint


def fail(*_):
    raise KeyError("mine") from IndexError("why")


def interrupt(*_):
    raise KeyboardInterrupt("mine")


def four(device):
    return [torch.ones(300, device=device, requires_grad=True) for _ in range(4)]


def run(device, spoil=lambda y: None, end=lambda y: y.exp()):
    """Go backward through four equal branches, one of them spoilt; all need what the others have still queued."""
    branches = [leaf.exp() * 2 for leaf in four(device)]
    spoilt = spoil(branches[2])
    branches[2] = spoilt if isinstance(spoilt, torch.Tensor) else branches[2]
    sum(end(branch).sum() for branch in branches).backward()


class Calling(torch.autograd.Function):
    """The identity; its backward calls a function first."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            ctx.function(grad)
        return grad, None


def forgiven(grad):
    with pytest.raises(KeyError):
        run(grad.device, lambda y: y.register_hook(fail))


def after_accumulating(device):
    leaves = four(device)
    leaves[3].register_post_accumulate_grad_hook(fail)
    sum((leaf.exp() * 2).exp().sum() for leaf in leaves).backward()


def unpacking(device):
    with saved_tensors_hooks(torch.detach, fail):
        run(device)


def at_the_end(device):
    run(device, lambda y: y.register_hook(lambda grad: torch.autograd.Variable._execution_engine.queue_callback(fail)))


def twice(device):
    loss = sum(leaf.exp().sum() for leaf in four(device))
    loss.backward()
    loss.backward()


def higher_order(device):
    leaves = four(device)
    branches = [leaf.exp() for leaf in leaves]
    branches[1].register_hook(fail)
    torch.autograd.grad(sum((branch * branch).sum() for branch in branches), leaves, create_graph=True)


def checkpointed(device, reentrant=False):
    def part(x):
        y = x.exp()
        if y.requires_grad:
            y.register_hook(fail)
        return y.sin()

    run(device, end=lambda y: checkpoint(part, y, use_reentrant=reentrant))


ERRORS = {
    "hook": lambda d: run(d, lambda y: y.register_hook(fail)),
    "interrupt": lambda d: run(d, lambda y: y.register_hook(interrupt)),
    "prehook of a node": lambda d: run(d, lambda y: y.grad_fn.register_prehook(fail)),
    "nonsense from a hook": lambda d: run(d, lambda y: y.register_hook(lambda grad: "nonsense")),
    "an operation": lambda d: run(d, lambda y: y.register_hook(lambda grad: grad @ grad[1:])),
    "function": lambda d: run(d, lambda y: Calling.apply(y, fail)),
    "backward in backward": lambda d: run(
        d, lambda y: Calling.apply(y, lambda grad: run(d, lambda z: z.register_hook(fail)))
    ),
    "after one that was caught": lambda d: run(d, lambda y: Calling.apply(Calling.apply(y, fail), forgiven)),
    "accumulated": after_accumulating,
    "unpacking": unpacking,
    "at the end": at_the_end,
    "twice": twice,
    "create_graph": higher_order,
    "checkpoint": checkpointed,
    "reentrant checkpoint": lambda d: checkpointed(d, True),
}


def out_of_memory(device):
    def fill(grad):
        torch.empty(torch.sim.mem_get_info(device)[0] + 1, dtype=torch.uint8, device=device)

    run(device, lambda y: y.register_hook(fill))


def no_room_for_an_operation(device):
    leaves = [torch.ones(2**16, device=device, requires_grad=True) for _ in range(4)]
    branches = [leaf.sin() for leaf in leaves]
    filler = torch.empty(torch.sim.mem_get_info(device)[0] - 2**16, dtype=torch.uint8, device=device)
    sum(branch.sum() for branch in branches).backward()
    del filler


def another_device(device):
    run(device, lambda y: y.register_hook(lambda grad: grad.to("sim:2")))


def over_all_devices(device):
    def visit(y):
        for place in ("sim:2", "sim:3", "sim:0"):
            y = y.to(place).exp()
        y.register_hook(fail)
        return y.to(device)

    run(device, end=visit)


OURS = {
    out_of_memory: torch.OutOfMemoryError,
    no_room_for_an_operation: torch.OutOfMemoryError,
    another_device: RuntimeError,
    over_all_devices: KeyError,
}


def outcome(function, device):
    """Return what is raised: type, text, and cause."""
    try:
        function(device)
    except BaseException as error:
        return type(error), str(error), str(error.__cause__)
    return None


def in_a_thread(function, *args):
    """Return what a function returns in a thread of its own, whose backward has not run before."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


@pytest.fixture(autouse=True)
def no_collection(gpus):
    """Python's garbage collection waits: what is not given up at once stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def used():
    return [torch.sim.memory_allocated(i) for i in range(4)]


@pytest.mark.parametrize(("kind", "device"), [("hook", "sim:0"), *((kind, "sim:1") for kind in ERRORS)])
def test_it_is_the_cpus_error_and_leaves_nothing_behind(kind, device):
    expected = in_a_thread(outcome, ERRORS[kind], "cpu")  # in a thread, whose end gives back what the CPU's error keeps
    assert expected is not None
    assert outcome(ERRORS[kind], device) == expected
    assert used() == [0] * 4
    assert in_a_thread(outcome, ERRORS[kind], device) == expected
    assert used() == [0] * 4


@pytest.mark.parametrize("function", OURS)
def test_errors_that_a_cpu_has_not_leave_nothing_behind_either(function):
    for run_it in (outcome, partial(in_a_thread, outcome)):
        assert run_it(function, "sim:1")[0] is OURS[function]
        assert used() == [0] * 4


def test_nothing_stays_when_others_declare_pythons_functions_differently(monkeypatch):
    monkeypatch.setattr(ctypes.pythonapi.Py_DecRef, "argtypes", [ctypes.py_object])  # as numba.cuda does
    assert outcome(ERRORS["hook"], "sim:1") == (KeyError, "'mine'", "why")
    assert used() == [0] * 4


def test_the_next_backward_is_right():
    for function in (*ERRORS.values(), *OURS):
        assert outcome(function, "sim:1") is not None
        x = torch.tensor([1.0, 2.0], device="sim:1", requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2, 4]


def test_an_error_while_tensors_are_kept_keeps_only_those():
    x = torch.ones(300, device="sim:1", requires_grad=True)
    y = x.exp()
    y.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        (y * 2).sum().backward()
    assert used() == [0, 2 * 1536, 0, 0]
    del x, y
    assert used() == [0] * 4
