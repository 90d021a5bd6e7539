"""Tensors on simulated GPUs behave as the CPU's do, and refuse what CUDA refuses, in its words."""

import copy
import io
import pickle
import weakref
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")
FACTORIES = [
    lambda d: torch.tensor([1, 2.5], device=d),
    lambda d: torch.arange(5, device=d),
    lambda d: torch.ones(2, 3).to(d),
    lambda d: torch.zeros(0, device=d),
    lambda d: torch.full((2,), 7, device=d),
    lambda d: torch.eye(3, device=d),
    lambda d: torch.linspace(0, 1, 5, device=d),
    lambda d: torch.tril_indices(3, 3, device=d),
    lambda d: torch.as_tensor(np.ones(2), device=d),
    lambda d: torch.tensor(3, device=d),
    lambda d: torch.empty_strided((2, 3), (1, 2), device=d).fill_(1),
    lambda d: torch.scalar_tensor(2, device=d),
    lambda d: torch.ones(2, dtype=torch.complex64, device=d),
    lambda d: torch.hann_window(4, device=d),
]


def six(device="sim:1"):
    return torch.arange(6.0, device=device).reshape(2, 3)


@pytest.mark.parametrize("make", FACTORIES)
def test_factories_make_the_cpus_tensors_on_the_device(make):
    ours, theirs = make("sim:2"), make("cpu")
    assert ours.device == torch.device("sim", 2)
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert ours.tolist() == theirs.tolist()


def test_copies_never_share_memory_and_moving_nowhere_is_no_copy():
    host = torch.ones(3)
    a = host.to("sim:0")
    b, back = a.to("sim:1"), a.cpu()
    for changed, others in ((host, (a, b, back)), (a, (b, back)), (b, (back,))):
        changed.fill_(5)
        assert all(5 not in other.tolist() for other in others)
    assert a.to("sim:0") is a.to(a.device) is a.sim() is a
    assert a.to("sim:0", copy=True) is not a
    assert (str(host.sim(3).device), str(host.to(2).device)) == ("sim:3", "sim:2")


@pytest.mark.parametrize(("src", "dst"), [("cpu", "sim:1"), ("sim:1", "cpu"), ("sim:0", "sim:1"), ("sim:1", "sim:1")])
def test_copy_across_devices_converts_and_broadcasts(src, dst):
    target = torch.zeros(2, 3, dtype=torch.int64, device=dst)
    assert target.copy_(torch.tensor([1.9, 2, 3], device=src)) is target
    assert target.tolist() == [[1, 2, 3]] * 2


def test_new_tensors_stay_on_the_device_unless_told():
    x = six("sim:1")
    makers = (x.new_tensor, x.new_ones, x.new_zeros, x.new_empty, lambda size: x.new_full(size, 2), torch.rand_like)
    assert {str(make(x if make is torch.rand_like else [1]).device) for make in makers} == {"sim:1"}
    assert x.new_zeros(2, device="cpu").device.type == "cpu"
    assert {str(torch.zeros_like(like, device="sim:2").device) for like in (x, torch.ones(2))} == {"sim:2"}


def program(x):
    """Change a tensor in place, through views and in shape, and return all that is seen of it."""
    x = x.clone()
    view = x[:, 1]
    view.mul_(3)
    x.t()[0].add_(7)
    x[x > 8] = -1
    x[torch.tensor([0, 1]), 2] += 5
    y = x.view(-1)[1:].unsqueeze(0)
    seen = [x.tolist(), y.tolist(), y.is_contiguous(), y.storage_offset()]
    for change in (
        lambda t: t.t_(),
        lambda t: t.squeeze_(),
        lambda t: t.unsqueeze_(1),
        lambda t: t.transpose_(0, 1),
        lambda t: t.swapaxes_(0, 1),
        lambda t: t.resize_(3, 1),
        lambda t: t.squeeze_(-1),
        lambda t: t.as_strided_((2, 1), (2, 1)),
    ):
        change(y)
        seen += [tuple(y.shape), y.stride(), y.storage_offset(), y.tolist()]
    out = x.new_empty(0)
    torch.mul(x, 2, out=out)
    return [*seen, tuple(out.shape), out.tolist(), x.split(1)[1].tolist(), [u.tolist() for u in x.unbind(1)]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_in_place_views_and_changes_of_shape():
    assert program(six("sim:1")) == program(six("cpu"))


CHANGES = [
    lambda t: t.resize_(2),
    lambda t: t.resize_(3, 3).zero_(),
    lambda t: t.t_(),
    lambda t: t.unsqueeze_(0),
    lambda t: t.set_(),
    lambda t: t.set_(t.new_ones(5)),
    lambda t: t.resize_as_(t.new_ones(1, 2)),
    lambda t: t.as_strided_((2,), (1,)),
    lambda t: torch.cat([t.new_ones(2, 2)] * 2, out=t),
    lambda t: t.mul_(2),
    lambda t: torch.max(six(t.device), 1, out=(t, t.new_empty(0, dtype=torch.int64))),
    lambda t: setattr(t, "data", t.new_ones(2)),
]


def with_data(x):
    y = x.new_empty(0)
    y.data = x
    return y


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("change", range(len(CHANGES)))
@pytest.mark.parametrize("share", [torch.detach, lambda x: nn.Parameter(x, False), with_data])
@pytest.mark.parametrize("first", [0, 1])
def test_a_detached_tensor_shares_numbers_and_not_the_shape(share, change, first):
    def seen(device):
        x = six(device).clone()
        pair = x, share(x)
        CHANGES[change](pair[first])
        return [(t.shape, t.stride(), t.storage_offset(), t.tolist()) for t in pair]

    assert seen("sim:1") == seen("cpu")


def test_lazy_conjugates_and_negatives():
    x = torch.tensor([1 + 2j, 3 - 1j], device="sim:0")
    c = x.conj()
    assert (c.is_conj(), c.imag.is_neg()) == (True, True)
    c.imag.mul_(2)
    c.add_(1j)
    assert x.tolist() == [1 + 3j, 3 - 3j]
    assert (c * c).tolist() == [v * v for v in c.tolist()]
    assert c.numpy(force=True).tolist() == c.tolist()


def test_backward_through_a_graph_that_crosses_devices():
    def graph(first, second):
        torch.manual_seed(0)
        w, b = torch.randn(3, 4).to(first).requires_grad_(), torch.randn(4).to(second).requires_grad_()
        loss = ((six(first) @ w).to(second) + b).tanh().pow(2).sum()
        loss.backward()
        assert (str(w.grad.device), str(b.grad.device)) == (first, second)
        return loss.cpu(), w.grad.cpu(), b.grad.cpu()

    assert all(map(torch.equal, graph("cpu", "cpu"), graph("sim:1", "sim:3")))


def test_higher_derivatives_and_transforms():
    x = six("sim:1")
    assert torch.func.grad(lambda v: (v**2).sum())(x).tolist() == (2 * x).tolist()
    assert torch.func.jvp(lambda v: v**2, (x,), (torch.ones_like(x),))[1].tolist() == (2 * x).tolist()
    assert torch.func.hessian(lambda v: (v**3).sum())(x[0]).tolist() == torch.diag(6 * x[0]).tolist()
    assert torch.vmap(lambda v: v.sum())(x).tolist() == x.sum(1).tolist()
    with torch.inference_mode():
        assert (x * 2)[0].tolist() == [0, 2, 4]


def test_module_moves_keep_the_parameters_themselves():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = list(net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    net.to("sim:1")
    assert all(a is b and isinstance(b, nn.Parameter) for a, b in zip(before, net.parameters(), strict=True))
    net(six("sim:1")).pow(3).sum().backward()
    old = net[1].weight.tolist()
    optimizer.step()
    assert net[1].weight.tolist() != old
    assert {str(p.grad.device) for p in net.sim(2).parameters()} == {"sim:2"}
    assert all(a is b and type(a) is nn.Parameter for a, b in zip(before, net.cpu().parameters(), strict=True))
    optimizer.step()  # which goes on with them, and with their gradients


def test_moves_keep_what_refers_to_a_parameter_and_what_a_program_gave_it():
    net, seen = nn.Linear(3, 3), []
    net.weight.tag = "mine"
    net.weight.register_hook(lambda gradient: seen.append("hook"))
    net.weight.register_post_accumulate_grad_hook(lambda p: seen.append(str(p.grad.device)))
    weak, graph = weakref.ref(net.weight), net(torch.ones(1, 3))  # a graph holds the weight too
    net(torch.ones(1, 3)).sum().backward()
    for device in ("sim:1", "cpu", "sim:2"):
        net.to(device)
        assert (weak(), net.weight.tag) == (net.weight, "mine")
        assert str(net.weight.device) == str(net.weight.grad.device) == device
        net(torch.ones(1, 3, device=device)).sum().backward()
        assert seen[-2:] == ["hook", device]
    assert net.weight.grad.tolist() == [[4] * 3] * 3
    assert graph.device.type == "cpu"


def test_data_takes_a_tensor_of_another_device():
    p = nn.Parameter(torch.ones(2), requires_grad=False)
    p.grad = torch.ones(2)
    for device in ("sim:1", "cpu", "sim:3"):
        p.data = torch.zeros(2, device=device)
        assert (str(p.device), str(p.grad.device), p.tolist(), p.requires_grad) == (device, device, [0] * 2, False)
        assert isinstance(p, nn.Parameter)
    p.data = torch.zeros(3, device="sim:3")
    p.data.add_(1)
    assert p.tolist() == [1, 1, 1]
    x = torch.ones(2, device="sim:1")
    x.data = torch.zeros(3)
    assert (type(x), str(x.device), x.tolist()) == (torch.Tensor, "cpu", [0] * 3)


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.1, "foreach": False}),
    (torch.optim.SGD, {"lr": 0.1, "fused": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": False}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    (torch.optim.RMSprop, {}),
    (torch.optim.Adagrad, {}),
    (torch.optim.NAdam, {"foreach": True}),
]


def saved(x, where):
    """Return what comes back from a file."""
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=True, map_location=where)


@pytest.mark.parametrize(("make", "options"), OPTIMIZERS)
def test_optimizers_take_the_cpus_steps_also_after_their_state_was_saved(make, options):
    torch.manual_seed(0)
    theirs = nn.Linear(4, 3)
    ours, data = copy.deepcopy(theirs).to("sim:1"), torch.randn(5, 4)
    optimizers = [make(net.parameters(), **options) for net in (theirs, ours)]
    for step in range(4):
        for net, optimizer, x in zip((theirs, ours), optimizers, (data, data.to("sim:1")), strict=True):
            optimizer.zero_grad()
            net(x).pow(2).sum().backward()
            optimizer.step()
        if step == 1:
            state = saved(optimizers[1].state_dict(), "cpu")
            optimizers[1] = make(ours.parameters(), **options)
            optimizers[1].load_state_dict(state)
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a, b.cpu())


MAPS = [
    ("sim:1", None, "sim:1"),
    ("sim:1", "cpu", "cpu"),
    ("sim:1", "sim:0", "sim:0"),
    ("cpu", "sim:3", "sim:3"),
    ("sim:1", {"sim:1": "sim:2"}, "sim:2"),
    ("sim:1", "sim", "sim:0"),
]


@pytest.mark.parametrize(("start", "where", "end"), MAPS)
def test_save_and_load(start, where, end):
    x = six(start)
    a, b, c = saved([x, x.t(), x[1]], where)
    assert (str(a.device), a.tolist(), b.tolist()) == (end, x.tolist(), x.t().tolist())
    c.fill_(9)
    assert a[1].tolist() == b[:, 1].tolist() == [9, 9, 9]  # views of one storage stay so
    assert x[1].tolist() == [3, 4, 5]


def test_state_dict_deepcopy_and_pickle():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("sim:2")
    net(six("sim:2")).sum().backward()
    twin = copy.deepcopy(net)
    assert twin[0].weight.grad is None  # torch's own copies of parameters leave their gradients behind
    twin[0].weight.data.zero_()
    assert (net[0].weight.any().item(), isinstance(twin[0].weight, nn.Parameter)) == (True, True)
    net.load_state_dict(twin.state_dict())
    assert not net[0].weight.any().item()
    a = torch.ones(3, device="sim:1")
    c, d = copy.deepcopy([a, a[1:]])
    d.fill_(5)
    assert (c.tolist(), a.tolist()) == ([1, 5, 5], [1, 1, 1])
    assert pickle.loads(pickle.dumps(a)).tolist() == a.tolist()
    assert copy.copy(a).data_ptr() == a.data_ptr()
    weight = pickle.loads(pickle.dumps(net))[0].weight
    assert (isinstance(weight, nn.Parameter), str(weight.device), weight.requires_grad) == (True, "sim:2", True)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.ones(2, device="sim:1"), "tensor([1., 1.], device='sim:1')"),
        (lambda: torch.ones((), dtype=torch.int32, device="sim"), "tensor(1, device='sim:0', dtype=torch.int32)"),
        (lambda: torch.ones(0, 3, device="sim:1"), "tensor([], device='sim:1', size=(0, 3))"),
        (lambda: six().requires_grad_()[0, 1:] * 2, "tensor([2., 4.], device='sim:1', grad_fn=<MulBackward0>)"),
        (
            lambda: nn.Parameter(torch.ones(1, device="sim")),
            "Parameter containing:\ntensor([1.], device='sim:0', requires_grad=True)",
        ),
        (lambda: torch.arange(5000, device="sim"), repr(torch.arange(5000)).replace(")", ", device='sim:0')")),
    ],
)
def test_printing(make, text):
    assert repr(make()) == text
    assert f"{make().sum():.2f}" == f"{make().cpu().sum():.2f}"


# Words of CUDA's own sentences (torch/csrc/utils/tensor_numpy.cpp, TensorIterator.cpp, and others)
TWO, OTHER = "at least two devices, {}!", "is on {}, different from other tensors on {}"
ERRORS = [
    (lambda: six().numpy(), TypeError, "can't convert sim:1"),
    (lambda: np.asarray(six()), TypeError, "Tensor.cpu()"),
    (lambda: six("sim:1") + six("sim:0"), RuntimeError, TWO.format("sim:1 and sim:0")),
    (lambda: six("cpu") + six("sim:0"), RuntimeError, TWO.format("sim:0 and cpu")),
    (lambda: six().add_(six("cpu")), RuntimeError, TWO.format("sim:1 and cpu")),
    (lambda: six("cpu").add_(six()), RuntimeError, TWO.format("sim:1 and cpu")),
    (lambda: six("cpu").add_(six().sum()), RuntimeError, TWO.format("sim:1 and cpu")),
    (lambda: torch.tensor(1.0).add_(six().sum()), RuntimeError, TWO.format("sim:1 and cpu")),
    (lambda: six() @ six("cpu").t(), RuntimeError, f"mat2 {OTHER.format('cpu', 'sim:1')}"),
    (lambda: torch.cat([six(), six("sim:2")]), RuntimeError, f"tensors {OTHER.format('sim:2', 'sim:1')}"),
    (lambda: nn.functional.linear(six(), six("cpu")), RuntimeError, "on the same device"),
    (lambda: torch.mul(six(), 2, out=six("cpu")), RuntimeError, "on the same device"),
    (lambda: torch.ones(1, device="sim:4"), torch.AcceleratorError, "invalid device ordinal"),
    (lambda: torch.ones(1).to("sim:9"), torch.AcceleratorError, "invalid device ordinal"),
    (lambda: torch.ones(1).sim(4), torch.AcceleratorError, "invalid device ordinal"),
    (lambda: torch.sim.set_device(4), torch.AcceleratorError, "invalid device ordinal"),
    (lambda: torch.randn(3, device="sim", generator=torch.Generator()), RuntimeError, "for generator but found 'cpu'"),
    (lambda: six().pin_memory(), RuntimeError, "pinned"),
    (lambda: torch.zeros(1, device="sim", pin_memory=True), RuntimeError, "pinned"),
    (lambda: six().set_(torch.ones(3).untyped_storage()), RuntimeError, "devices must match"),
    (lambda: six().to_sparse(), NotImplementedError, "sparse_coo"),
    (lambda: torch.quantize_per_tensor(six(), 1, 0, torch.qint8), NotImplementedError, "quantised"),
    (lambda: torch.ones(2, 2, device="sim").to_mkldnn(), (NotImplementedError, RuntimeError), ""),
    (lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,), device="sim"), (NotImplementedError, RuntimeError), ""),
    (lambda: saved(six("sim:3"), "sim:4"), RuntimeError, "map your storages to an existing device"),
    (lambda: torch.nested.nested_tensor([six(), six()]), NotImplementedError, "nested"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).to("sim:1"), NotImplementedError, "nested"),
    (lambda: np.from_dlpack(six()), BufferError, "DLPack"),
    (lambda: six().as_subclass(type("Mine", (torch.Tensor,), {})), NotImplementedError, "Mine"),
    (
        lambda: torch.jit.save(torch.jit.trace(nn.PReLU().to("sim"), six("sim")), io.BytesIO()),
        NotImplementedError,
        "jit",
    ),
    (lambda: six().__setitem__(torch.tensor([0, 1]), torch.ones(2, 3)), RuntimeError, "but got values is on cpu"),
    (lambda: six()[torch.tensor([0], device="sim:2")], RuntimeError, "as the indexed tensor (sim:1)"),
    (lambda: six("cpu")[torch.tensor([0], device="sim:2")], RuntimeError, "as the indexed tensor (cpu)"),
    (lambda: six().int() @ six().int().t(), NotImplementedError, "\"addmm_cuda\" not implemented for 'Int'"),
    (lambda: torch.mm(six().int(), six().int().t(), out=six().int()), NotImplementedError, "addmm_cuda"),
    (lambda: six()[:, :2].int().addmm_(six()[:, :2].int(), six()[:, :2].int()), NotImplementedError, "addmm_cuda"),
    (lambda: six().long() @ six()[0].long(), NotImplementedError, "addmv_impl_cuda"),
    (
        lambda: torch.einsum("bij,bjk->bik", six()[None].bool(), six().t()[None].bool()),
        NotImplementedError,
        "\"baddbmm_cuda\" not implemented for 'Bool'",
    ),
    (lambda: ForkingPickler.dumps(nn.Parameter(six())), RuntimeError, "another process"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:`torch.jit")
@pytest.mark.parametrize(("call", "kind", "text"), ERRORS)
def test_errors_are_cudas(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)
    assert "INTERNAL" not in str(caught.value)


def test_host_scalars_and_host_indices_may_take_part():
    x, two = six(), torch.tensor(2.0)
    assert (x * two).tolist() == (two * x).tolist() == (x * 2).tolist()
    assert torch.where(x > 1, x, two).tolist() == torch.where(x.cpu() > 1, x.cpu(), two).tolist()
    assert x.masked_fill(x > 1, two).tolist() == x.cpu().masked_fill(x.cpu() > 1, 2).tolist()
    assert x[torch.tensor([1])].tolist() == [[3, 4, 5]]
    assert x[torch.tensor([True, False])].tolist() == [[0, 1, 2]]
    x[torch.tensor([0])] = torch.tensor(8.0)
    assert x[0].tolist() == [8, 8, 8]
    scale = torch.tensor(3.0, requires_grad=True)
    (x * scale).sum().backward()
    assert (scale.grad.device.type, scale.grad.item()) == ("cpu", x.sum().item())


def test_foreach_over_two_devices():
    a, b = torch.ones(1, device="sim:0"), torch.ones(2, device="sim:1")
    assert [t.tolist() for t in torch._foreach_add([a, b], [a, b])] == [[2], [2, 2]]
    torch._foreach_mul_([a, b], 3)
    assert [a.tolist(), b.tolist()] == [[3], [3, 3]]
    for p in (a, b):
        p.grad = torch.ones_like(p)
    assert torch.nn.utils.clip_grad_norm_([a, b], 1.0).item() == pytest.approx(3**0.5)


def test_layers_that_torch_fuses_on_accelerators():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3)
    for layer in (
        nn.LSTM(3, 4, 2, batch_first=True),
        nn.GRU(3, 4, batch_first=True, bidirectional=True),
        nn.LSTM(3, 4, bias=False, proj_size=2),
        nn.GRUCell(3, 4),
        nn.RNN(3, 4),
    ):
        twin, data = copy.deepcopy(layer).to("sim:1"), x[0] if isinstance(layer, nn.GRUCell) else x
        ours, theirs = (net(d)[0] for net, d in ((twin, data.to("sim:1")), (layer, data)))
        theirs.pow(2).sum().backward()
        ours.pow(2).sum().backward()
        torch.testing.assert_close(ours.cpu(), theirs)
        for a, b in zip(layer.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(b.grad.cpu(), a.grad)
    packed = nn.utils.rnn.pack_padded_sequence(x.to("sim:1"), torch.tensor([5, 2]), batch_first=True)
    assert packed.batch_sizes.device.type == "cpu"
    assert str(nn.utils.rnn.pad_packed_sequence(nn.LSTM(3, 4, device="sim:1")(packed)[0])[0].device) == "sim:1"
