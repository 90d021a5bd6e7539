EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("one shard too many is larger (off by one)", "i < larger", "i <= larger"),
    ("labels become floating-point numbers", "y[start:stop].to(device)", "y[start:stop].to(device).float()"),
    ("too few labels are accepted", "len(y) != n", "len(y) > n"),
    ("too many labels are accepted", "len(y) != n", "len(y) < n"),
    ("an empty batch is accepted", "n < k", "0 < n < k"),
    *(
        (
            f"{call}: no slice",
            "return X_shards, y_shards",
            f"return [[t.to(d) for t, d in zip({call}, devices)] for whole in (X, y)]",
        )
        for call in (
            "whole.tensor_split(k)",
            "__import__('torch').tensor_split(whole, k)",
            "whole.chunk(k)",
            "whole.split([*map(len, X_shards)])",
            "__import__('torch').split(whole, [*map(len, X_shards)])",
            "map(__import__('torch').from_numpy, __import__('numpy').array_split(whole.numpy(), k))",
            "[whole[places] for places in __import__('numpy').array_split(range(n), k)]",
        )
    ),
    ("the error does not say what was given", 'f"{n} examples for {k} devices"', '"too few examples"'),
]
