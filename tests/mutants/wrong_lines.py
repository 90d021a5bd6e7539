EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("one line is not named", 'lines="AE"', 'lines="E"'),
    ("every line is named", 'lines="AE"', 'lines="ABCDE"'),
    ("the sum over shards is blamed", 'lines="AE"', 'lines="AD"'),
    (
        "the first replica is still an alias",
        "[d2l.get_params(params, device) for device in devices]",
        "[[p.detach().to(device).requires_grad_() for p in params] for device in devices]",
    ),
    (
        "it divides by the number of devices too",
        "d2l.sgd(replica, lr, len(X))",
        "d2l.sgd(replica, lr / len(devices), len(X))",
    ),
    ("it divides by a shard and by the devices", "len(X))", "len(X_shards[0]) * len(devices))"),
    ("mean losses are summed", 'reduction="sum"', 'reduction="mean"'),
    ("the mean of the shards' means", 'reduction="sum")', 'reduction="mean") * len(X) / len(devices)'),
    ("only the first replica takes the step", "for replica in replicas:", "for replica in replicas[:1]:"),
    ("one tensor's gradients are not exchanged", "range(len(params))", "range(len(params) - 1)"),
    ("one GPU does everything", "    replicas = [", "    devices = devices[:1]\n    replicas = ["),
]
