"""Checks of the exercises on what training needs: doubling times, a network's MACs, and the fewest GPUs."""

import math

from d2lmini.checks.mechanism import Wrong, ask, attempt, check, expected, must_be, number


@check
def doubling_months(function):
    """``function(first, last, years)``: the months in which a quantity that grows by a constant factor doubles."""
    for first, last, years in ((1, 2, 1), (1, 4, 1), (3, 24, 6), (1.6e12, 2.25e15, 14), (10, 1000, 2.5), (8, 1, 3)):
        given = f"from {first:g} to {last:g} in {years:g} years"
        got = ask(function, first, last, years, given=given, what="a number of months")
        doublings = math.log2(last / first)
        slips = {
            "those are years": years / doublings,
            "that takes the growth for a straight line": 12 * years * first / (last - first),
            "the natural logarithm counts factors of e": 12 * years / math.log(last / first),
        }
        must_be(12 * years / doublings, got, given=given, unit=" months", slips=slips)
    return "growth by a factor takes as many doublings as its logarithm to base 2 says"


@check
def conv_share(function):
    """``function(layers)``: the share of a network's MACs that its convolutions do."""
    lenet = [("conv", 1, 20, 3, 26, 26), ("conv", 20, 50, 5, 9, 9), ("dense", 800, 128), ("dense", 128, 10)]
    networks = {
        "LeNet": lenet,
        "one convolution on a wide image": [("conv", 3, 8, 3, 10, 40), ("dense", 100, 10)],
        "dense layers alone": lenet[2:],
        "convolutions alone": lenet[:2],
        "a dense layer between convolutions": [("conv", 2, 3, 1, 4, 5), ("dense", 60, 60), ("conv", 3, 2, 5, 1, 1)],
    }
    for name, layers in networks.items():
        conv = sum(math.prod(layer[1:]) * layer[3] for layer in layers if layer[0] == "conv")
        dense = sum(math.prod(layer[1:]) for layer in layers if layer[0] == "dense")
        got = ask(function, list(layers), given=name, what="a share of all MACs")
        slips = {"in percent": 100 * conv / (conv + dense), "that is the dense layers' share": dense / (conv + dense)}
        must_be(conv / (conv + dense), got, given=name, slips=slips)
    return "a convolution uses every weight at each position of its output, a dense layer once"


@check
def fewest_gpus(function):
    """``function(parameters, tokens, days, peak, share, memory)``: the fewest GPUs, for time and for memory."""
    for parameters, tokens, days, peak, share, memory, want in (
        (405 * 10**9, 15.6e12, 54, 989e12, 0.4, 80 * 2**30, 20539),
        (175 * 10**9, 300e9, 1000, 989e12, 0.4, 80 * 2**30, 33),  # 10 for time
        (10**9, 20e9, 10, 312e12, 0.5, 40 * 2**30, 1),
        (7 * 10**9, 860 * 10**9, 7, 200e12, 0.25, 80 * 2**30, 1195),
        (5 * 2**30, 10**9, 30, 1e15, 0.5, 40 * 2**30, 2),
        (5 * 2**30 + 1, 10**9, 30, 1e15, 0.5, 40 * 2**30, 3),
    ):
        given = (
            f"{parameters:,} parameters, {tokens:g} tokens, {days} days, {peak:g} FLOP/s, "
            f"share {share}, {memory / 2**30:g} GiB"
        )
        answer = attempt(function, parameters, tokens, days, peak, share, memory, given=given)
        if number(answer) != want:
            raise Wrong(f"{given}: {expected(want, answer)}")
    return "time and memory each need a whole number of GPUs, and the larger number counts"
