"""Wrong answers to the exercise split-batch, which its check must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the remainder is dropped", "small + (i < larger)", "small"),
    ("one shard too many is larger (off by one)", "i < larger", "i <= larger"),
    ("the larger shards come last", "i < larger", "i >= k - larger"),
    ("the last device takes the whole remainder", "(i < larger)", "larger * (i == k - 1)"),
    ("an example stands in two shards", "X[start:stop]", "X[max(start - 1, 0) : stop]"),
    ("X and y are cut one apart", "y[start:stop]", "y[start + 1 : stop + 1]"),
    ("every device gets the first shard", "start = stop", "start = 0"),
    ("shards are dealt out like cards", "X[start:stop]", "X[i::k]"),
    ("the shards of y are in reverse", "return X_shards, y_shards", "return X_shards, y_shards[::-1]"),
    ("X and y change places", "return X_shards, y_shards", "return y_shards, X_shards"),
    ("pairs in place of two lists", "return X_shards, y_shards", "return list(zip(X_shards, y_shards))"),
    ("nothing is returned", "return X_shards, y_shards", "X_shards, y_shards"),
    ("the shards of X stay where they were", "X[start:stop].to(device)", "X[start:stop]"),
    ("the shards of y stay where they were", "y[start:stop].to(device)", "y[start:stop]"),
    ("all shards go to the first device", "X[start:stop].to(device)", "X[start:stop].to(devices[0])"),
    ("labels become floating-point numbers", "y[start:stop].to(device)", "y[start:stop].to(device).float()"),
    ("too few labels are accepted", "len(y) != n", "len(y) > n"),
    ("too many labels are accepted", "len(y) != n", "len(y) < n"),
    ("empty shards are accepted", "n < k", "n < 0"),
    ("an empty batch is accepted", "n < k", "0 < n < k"),
    ("as many examples as devices are refused", "n < k", "n <= k"),
    (
        "the shards are cut from the first batch (stale)",
        "X[start:stop]",
        "globals().setdefault('first', X)[start:stop]",
    ),
    ("the list of devices is used up", "enumerate(devices)", "enumerate(iter(lambda: devices.pop(0), None))"),
    ("the shards' values are changed in place", "X[start:stop]", "X[start:stop].mul_(2)"),
    (
        "shards of earlier calls come back too (stale)",
        "X_shards, y_shards, start = [], [], 0",
        "start, (X_shards, y_shards) = 0, globals().setdefault('kept', ([], []))",
    ),
    ("too small a batch raises another error", 'ValueError(f"{n} examples for', 'RuntimeError(f"{n} examples for'),
    ("the error says nothing", 'ValueError(f"{n} examples for {k} devices")', "ValueError"),
    ("every device gets the whole batch (aliased)", "X[start:stop].to(device)", "X"),
]

# what is wrong, a whole function
FUNCTIONS = [
    (
        f"{what}, which is not a slice",
        f"""
import torch

def split_batch(X, y, devices):
    n, k = len(X), len(devices)
    if len(y) != n or n < k:
        raise ValueError(f"{{n}} examples and {{len(y)}} labels for {{k}} devices")
    sizes = [n // k + (i < n % k) for i in range(k)]
    return [[t.to(d) for t, d in zip({call}, devices)] for whole in (X, y)]
""",
    )
    for what, call in (
        ("tensor_split", "whole.tensor_split(k)"),
        ("tensor_split, the function", "torch.tensor_split(whole, k)"),
        ("chunk, which makes 3, 3 and 1 of 7", "whole.chunk(k)"),
        ("chunk into single examples", "[torch.cat(whole.chunk(n)[sum(sizes[:i]) :][: sizes[i]]) for i in range(k)]"),
        ("split with the right sizes", "whole.split(sizes)"),
        ("split, the function", "torch.split(whole, sizes)"),
    )
]
