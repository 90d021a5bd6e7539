"""Checks of the exercises on numbers: scales, zero points, what is left unsent, when it pays."""

import math

import torch

from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, brief, check, listed, many, number, reals, typed


@check
def loss_scale(function):
    """``function(gradients, limit)``: the largest power of two by which no gradient grows beyond `limit`."""
    half, quarter = 65504.0, 448.0  # the largest numbers of float16 and of float8_e4m3fn
    for place, (largest, magnitudes) in enumerate(
        (
            (half, [1.0]),
            (half, [0.003, -20.0, 0.0]),
            (half, [-7e-6]),
            (quarter, [14.0]),
            (quarter, [14.000001]),
            (quarter, [-13.9]),
            (half, [65504.0]),
            (half, [70000.0]),
            (quarter, [1e6, 1.0]),
            (half, [0.0, 2.0**-60]),
            (quarter, [math.nextafter(14, 15)]),
        )
    ):
        gradients = [torch.tensor(magnitudes, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)]
        gradients = gradients[:: 1 - 2 * (place % 2)]  # the largest is not always in the first
        given = f"largest {largest:g}, gradients {brief(magnitudes, 17)} and zeros"
        want = 2.0 ** math.floor(math.log2(largest / max(map(abs, magnitudes))))
        while want * max(map(abs, magnitudes)) > largest:  # a quotient just below a power of two was rounded to it
            want /= 2
        _try_number(function, (gradients, largest), given, want)
    both = [torch.tensor([20.0, -20.0]), torch.tensor([[15.0, 20.0]])]  # no sum and no norm is the largest
    _try_number(function, (both, quarter), "largest 448, gradients [20, -20] and [[15, 20]]", 16)
    _try_number(function, ([torch.zeros(3)], half), "largest 65504, only zeros", 1)
    return "a power of two, as large as it may be, for small and large gradients, and 1 for zeros"


def _try_number(function, inputs, given, want):
    got = ask(function, *inputs, given=given, what=f"the number {want:,.10g}")
    if got != want:
        told, found = apart(want, got, ",")
        raise Wrong(f"{given}: expected {told}, got {found}")


@check
def zero_point(function):
    """``function(x)``: (integers 0 to 255, scale, zero) with x ≈ scale × (integers − zero), and 0 without error."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(200, generator=generator)
    for given, x in (
        ("from −1 to 3", torch.linspace(-1, 3, 50)),
        ("200 normal numbers", spread),
        ("0 to 6, as after a ReLU", torch.linspace(0, 6, 40)),
        ("2 to 5", torch.linspace(2, 5, 40)),
        ("−7 to −2", torch.linspace(-7, -2, 30)),
        ("−3 to 1 thousandths", torch.linspace(-3e-3, 1e-3, 50)),
        ("−63.5 to 191.5", torch.linspace(-63.5, 191.5, 52)),  # both ends are rounded up
        ("one number, 4", torch.tensor([4.0])),
        ("only zeros", torch.zeros(5)),
    ):
        _try_codes(f"x = {given}", x, attempt(function, x, given=f"x = {given}"))
    return "256 codes from the smallest number to the largest, and zero has a code of its own"


def _try_codes(given, x, answer):
    codes, scale, zero = listed(answer, 3) or (None, None, None)
    codes, scale, zero = reals(codes), number(scale), number(zero)
    if None in (codes, scale, zero):
        raise Wrong(f"{given}: expected (integers, scale, zero), got {typed(answer)}")
    if len(codes) != len(x) or not all(c in range(256) for c in [*codes, zero]):
        raise Wrong(f"{given}: expected {len(x)} integers and a zero from 0 to 255, got {brief(codes)}, zero {zero}")
    low, high = min(x.min().item(), 0), max(x.max().item(), 0)
    step = (high - low) / 255
    # A scale that is a little larger leaves room for a zero that was rounded.
    wider = max(-low / zero if zero else 0, high / (255 - zero) if zero < 255 else 0)
    if step and not any(math.isclose(scale, fit, rel_tol=1e-3) and fit < 1.01 * step for fit in (step, wider)):
        raise Wrong(f"{given}: 256 codes from {low:g} to {high:g} are {step:g} apart; your scale is {scale:g}")
    for value, code in zip(x.tolist(), codes):
        if not abs(scale * (code - zero) - value) <= 0.501 * scale * (step > 0):
            raise Wrong(
                f"{given}: {value:g} has code {code}, which stands for {scale * (code - zero):g}: the step is {scale:g}"
            )


@check
def send_largest(function):
    """``function(gradient, unsent, k)``: (values, places, unsent) of top-k with error feedback."""
    generator = torch.Generator().manual_seed(0)
    for n, k in ((1, 1), (5, 2), (40, 1), (40, 13), (8, 8)):
        gradient, unsent = torch.randn(n, generator=generator), 3 * torch.randn(n, generator=generator)
        given = f"{many(n, 'number')}, k = {k}"
        _try_sent(given, gradient + unsent, k, attempt(function, gradient, unsent, k, given=given))
    gradient, unsent = torch.tensor([9.0, 1.0, 0.0, 2.0]), torch.tensor([-8.5, 0.0, 4.0, 2.5])
    given = "gradient [9, 1, 0, 2], unsent [-8.5, 0, 4, 2.5], k = 2"
    _try_sent(given, gradient + unsent, 2, attempt(function, gradient, unsent, 2, given=given))
    return "the largest of what is due are sent, and all that is not sent stays due"


def _try_sent(given, due, k, answer):
    values, places, left = map(reals, listed(answer, 3) or (None, None, None))
    if None in (values, places, left) or len(left) != len(due):
        raise Wrong(
            f"{given}: expected (values, places, unsent), three lists or tensors, unsent as long as the "
            f"gradient, got {typed(answer)}"
        )
    if len(set(places) & set(range(len(due)))) != k or len(values) != k or len(places) != k:
        raise Wrong(f"{given}: expected {many(k, 'value')} with a place each, got {brief(values)} for {brief(places)}")
    at, sent = torch.tensor(places, dtype=torch.int64), torch.zeros_like(due)
    sent[at] = torch.tensor(values, dtype=due.dtype)
    if due.abs()[at].min() < due.abs().topk(k).values[-1]:
        raise Wrong(f"{given}: due is {brief(due)}; the {k} largest in magnitude must go, you send places {places}")
    if not torch.allclose(sent[at], due[at], rtol=0.01):  # as much as a short number may leave due
        raise Wrong(f"{given}: at places {brief(places)} is due {brief(due[at])}, you send {brief(values, 6)}")
    total = sent + torch.tensor(left, dtype=due.dtype)
    if not torch.allclose(total, due, atol=1e-5):
        place = int((total - due).abs().argmax())
        told, found = apart(due[place].item(), total[place].item())
        raise Wrong(f"{given}: at place {place} is due {told}, but sent and unsent add up to {found}")


@check
def most_ranks(function):
    """``function(dense, message)``: up to how many ranks gathering messages moves fewer bytes than a ring."""
    for dense, message in (
        (1000, 40),
        (1000, 30),
        (8, 8),
        (8, 16),
        (8, 15),
        (100, 1),
        (10**9, 31_250_001),
        (9, 4),
        (10**18 + 1, 3),
        (7, 5),
    ):
        given = f"{dense} bytes of gradients, messages of {message}"
        _try_number(function, (dense, message), given, max(1, (2 * dense - 1) // message))
    return "the last number of ranks before the ring is as good, also where it is as good at once"
