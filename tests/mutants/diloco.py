EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("away from the mean", "before - p.data / dist.get_world_size()", "p.data / dist.get_world_size() - before"),
    ("the sum, not the mean", " / dist.get_world_size()", ""),
    ("the outer step starts at the sum", "                p.data.copy_(before)\n", ""),
    ("no outer step", "            outer.step()\n", ""),
    ("an average after every update", "if step % H == 0:", "if True:"),
    ("an update too early", "enumerate(batches, 1)", "enumerate(batches)"),
    ("always from the first parameters", "            old = [p.detach().clone() for p in net.parameters()]\n", ""),
    (
        "twice the bytes",
        "dist.all_reduce(p.data)",
        "dist.all_reduce(p.data.clone())\n                dist.all_reduce(p.data)",
    ),
    ("the inner momentum is lost", "outer.step()", "outer.step()\n            inner.state.clear()"),
    ("each rank by itself", "dist.all_reduce(p.data)", "p.data *= dist.get_world_size()"),
]
