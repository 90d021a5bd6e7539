"""Parts of PyTorch further from the tensor: checkpoints, lazy modules, storages, generators, gradients, processes."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import simgpu

pytestmark = pytest.mark.usefixtures("gpus")


CHECKPOINTS = [
    lambda net, x: net(x),
    lambda net, x: checkpoint(net, x, use_reentrant=True),
    lambda net, x: checkpoint(net, x, use_reentrant=False),
    lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=False),
]


@pytest.mark.parametrize("device", ["cpu", "sim:0", "sim:1"])
def test_a_checkpointed_dropout_drops_the_same_again(device):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6), nn.Tanh()).to(device)
    data, grads = torch.randn(4, 6).to(device), []
    for run in CHECKPOINTS:
        x = data.clone().requires_grad_()
        torch.manual_seed(5)
        run(net, x).sum().backward()
        grads.append(x.grad)
    assert all(torch.equal(grad, grads[0]) for grad in grads)


LAZY_MOVES = [
    lambda net: net.to("sim:1"),
    lambda net: net.sim(1),
    lambda net: net.to("sim:2").to("sim:1").double().float(),
    lambda net: net.to("sim:1").cpu().to("sim:1"),
    lambda net: net.cpu().to("sim:1", torch.float32),
]


@pytest.mark.parametrize("move", LAZY_MOVES, ids=range(len(LAZY_MOVES)))
def test_lazy_modules_take_their_shape_on_the_device(move):
    x, outs = torch.arange(30.0).reshape(6, 5).sin(), []
    theirs, ours = (nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyLinear(2)) for _ in "ab")
    before = list(move(ours).parameters())
    optimizer = torch.optim.SGD(before, 0.1)
    for net, data in ((theirs, x), (ours, x.to("sim:1"))):
        torch.manual_seed(3)
        outs.append(net(data))
    torch.testing.assert_close(outs[1].cpu(), outs[0])
    outs[1].sum().backward()
    optimizer.step()
    assert all(a is b and isinstance(a, nn.Parameter) for a, b in zip(before, ours.parameters(), strict=True))
    found = [*before, *ours.buffers()]
    assert {(str(t.device), nn.parameter.is_lazy(t)) for t in found} == {("sim:1", False)}
    assert list(ours.state_dict()) == list(theirs.state_dict())


LISTS = [
    lambda x: torch._foreach_add_([x], 1.0),
    lambda x: torch._foreach_mul_([x.detach(), x * 1], [2.0, 3.0]),
    lambda x: torch._foreach_zero_([x]),
    lambda x: torch._foreach_copy_([x.view(3)], [x * 2]),
    lambda x: torch._foreach_add_([x, torch.ones(2, device="cpu" if x.is_cpu else "sim:2")], 1.0),
]


@pytest.mark.parametrize("change", LISTS, ids=range(len(LISTS)))
@pytest.mark.parametrize("device", ["cpu", "sim:1"])
def test_a_list_that_changes_what_backward_needs_is_an_error(change, device):
    w, x = torch.ones(3, device=device, requires_grad=True), torch.ones(3, device=device)
    y = (w * x).sum()
    change(x)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        change(torch.ones(3, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16, torch.float8_e5m2], ids=str)
def test_a_storage_that_was_looked_at_is_still_torchs(dtype):
    x = torch.ones(4, device="sim:1").to(dtype)
    storage, file = x.untyped_storage(), io.BytesIO()
    assert type(storage) is torch.UntypedStorage
    assert {str(copy.deepcopy(kept).device) for kept in (x, storage)} == {"sim:1"}
    torch.save([x, x[1:]], file)
    file.seek(0)
    a, b = torch.load(file, weights_only=True, map_location={"sim:1": "sim:2"})
    assert (a.dtype, str(a.device), str(b.device)) == (dtype, "sim:2", "sim:2")
    assert b.float().tolist() == [1, 1, 1]
    a.view(torch.uint8).zero_()
    assert b.float().tolist() == [0, 0, 0]  # they were one memory, and stay so
    assert x.float().tolist() == [1] * 4


def test_storages_convert_and_those_of_the_host_grow():
    double = torch.arange(3.0, device="sim:1").storage().double()
    assert (double.tolist(), str(double.device)) == ([0, 1, 2], "sim:1")
    host = torch.ones(3).untyped_storage()
    assert (host.resize_(40).nbytes(), host.device.type) == (40, "cpu")


def test_generators_are_copied_with_their_device():
    ours, host = torch.Generator("sim:2").manual_seed(4), torch.Generator().manual_seed(4)
    torch.rand(3, device="sim:2", generator=ours)
    torch.rand(3, generator=host)
    again = pickle.loads(pickle.dumps(host))
    expected = torch.rand(5, generator=again)
    for generator in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.clone_state(), ours):
        assert str(generator.device) == "sim:2"
        assert torch.equal(torch.rand(5, device="sim:2", generator=generator).cpu(), expected)
    assert again.device.type == "cpu"
    assert pickle.loads(pickle.dumps(torch.Generator)) is torch.Generator
    assert str(torch.Generator(1).device) == "sim:1"
    with pytest.raises(RuntimeError, match="'cpu' device"):
        torch.randperm(3, generator=ours)


@pytest.mark.filterwarnings("ignore:.*(nested tensors|TypedStorage)")
def test_the_device_of_what_old_and_generic_code_makes():
    x = torch.arange(3.0, device="sim:2")
    made = x.new(4), x.new([1, 2]), x.new(), x.new(x.untyped_storage()), x.new(x)
    assert {str(t.device) for t in made} == {"sim:2"}
    assert x.clone().copy_(5).tolist() == [5, 5, 5]
    assert torch.tensor([x[0], x[2]]).tolist() == [0, 2]
    assert str(torch.tensor([x[0], x[2]], device="sim:1").device) == "sim:1"
    torch.sim.set_device(1)
    torch.set_default_device("sim")
    try:
        made = torch.tensor([1]), torch.as_tensor([1]), torch.asarray([1]), torch.ones(1), nn.LazyLinear(1).weight
        assert {str(t.device) for t in made} == {"sim:1"}
    finally:
        torch.set_default_device(None)
        torch.sim.set_device(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.view(6),
        lambda x: x.t(),
        lambda x: x[0],
        lambda x: x.detach(),
        lambda x: x.chunk(2)[1],
        lambda x: x.unsqueeze(0),
        lambda x: x.t_(),
        lambda x: x + 1,
        lambda x: (x + 1).view(6),
        lambda x: x.mul_(2),
    ],
)
def test_views_of_an_outer_tensor_in_inference_mode_are_ordinary_ones(change):
    def looked(device):
        x = torch.arange(6.0, device=device).view(2, 3)
        with torch.inference_mode():
            y = change(x)
        return y.is_inference(), x._version, y.tolist(), x.tolist(), None if y.is_inference() else y._version

    assert looked("sim:1") == looked("cpu")


def test_a_padded_batch_passes_the_fast_path_of_a_transformer():
    torch.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 8), torch.arange(5) >= torch.tensor([[3], [5]])
    with torch.inference_mode():
        theirs = net(x, src_key_padding_mask=padding)
        ours = net.to("sim:1")(x.to("sim:1"), src_key_padding_mask=padding.to("sim:1"))
    torch.testing.assert_close(ours.cpu()[~padding], theirs[~padding])


@pytest.mark.parametrize("place", ["cpu", "sim:1"])
def test_lengths_for_ctc_may_lie_on_either_side(place):
    def loss(device, place):
        chances = torch.randn(10, 2, 5, generator=torch.Generator().manual_seed(0)).log_softmax(2).to(device)
        labels = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]], device=device)
        lengths = torch.tensor([10, 9], device=place), torch.tensor([4, 3], device=place)
        with torch.inference_mode():
            alone = nn.functional.ctc_loss(chances, labels, *lengths).cpu()
        chances.requires_grad_()
        nn.functional.ctc_loss(chances, labels, *lengths).backward()
        return alone, chances.grad.cpu()

    torch.testing.assert_close(loss("sim:1", place), loss("cpu", "cpu"))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: nn.functional.avg_pool3d(x[None], 2),
        lambda x: nn.functional.interpolate(x, size=3, mode="bilinear", antialias=True),
    ],
    ids=["pool", "interpolate"],
)
def test_types_that_cudas_kernels_take_and_the_cpus_do_not(pool):
    def made(device, dtype):
        x = torch.linspace(0, 1, 256).reshape(2, 2, 8, 8).to(dtype).to(device).requires_grad_()
        pool(x).square().sum().backward()
        return pool(x).detach().cpu(), x.grad.cpu()

    for ours, theirs in zip(made("sim:1", torch.bfloat16), made("cpu", torch.float32), strict=True):
        torch.testing.assert_close(ours, theirs.bfloat16(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_whole_numbers_are_counted_as_experts_count_their_tokens(dtype):
    experts = torch.tensor([3, 0, 3, 1, 3], dtype=dtype, device="sim:1")
    counts = torch.histc(experts, bins=4, min=0, max=3)
    assert (counts.tolist(), counts.dtype) == ([1, 1, 0, 3], dtype)


def test_a_loss_that_autocast_would_spoil_is_refused():
    chances = torch.full((2,), 0.5, device="sim:1")
    assert nn.functional.binary_cross_entropy(chances, chances).item() > 0
    with torch.autocast("sim"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        nn.functional.binary_cross_entropy(chances, chances)


class Elsewhere(torch.autograd.Function):
    """Twice a tensor, on another device; its backward forgets to bring the gradient home."""

    @staticmethod
    def forward(ctx, factor, x, place):
        return factor * x.to(place)

    @staticmethod
    def backward(ctx, grad):
        return None, 2 * grad, None


@pytest.mark.parametrize("place", ["sim:2", "cpu"])
def test_a_gradient_on_the_wrong_device_is_an_error_as_on_cuda(place):
    x = torch.ones(3, device="sim:1", requires_grad=True)
    expected = f"invalid gradient at index 0 - expected device sim:1 but got {place}"
    for root in (x, x * 1):
        with pytest.raises(RuntimeError, match=expected):
            root.backward(torch.ones(3, device=place))
    second = expected.replace("0", "1", 1)
    for y in (x, x.exp()):
        with pytest.raises(RuntimeError, match=f"Function ElsewhereBackward returned an {second}"):
            Elsewhere.apply(2, y, place).sum().backward()
    assert x.grad is None
    single = torch.ones((), device="sim:1", requires_grad=True)
    Elsewhere.apply(2, single, place).backward(torch.tensor(3.0))  # without dimensions it is moved
    assert (str(single.grad.device), single.grad.item()) == ("sim:1", 6)
    with pytest.raises(RuntimeError, match="expected device cpu but got sim:1"):
        torch.ones(3, requires_grad=True).backward(x.detach())
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x, x * 2], [x.detach()])


def test_streams_and_events_end_with_their_clock():
    simgpu.enable(2)
    stream, event = torch.sim.Stream(1), torch.sim.Event(enable_timing=True)
    event.record()
    for clock in (True, False):
        simgpu.enable(2, clock=clock)
        for use in (
            lambda: torch.sim.set_stream(stream),
            lambda: event.record(),
            lambda: event.wait(),
            lambda: torch.sim.current_stream().wait_stream(stream),
            lambda: event.elapsed_time(torch.sim.Event(enable_timing=True)),
        ):
            with pytest.raises(RuntimeError, match="last: make a new one"):
                use()
    assert torch.sim.current_device() == 0
