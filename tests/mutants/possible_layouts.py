EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a group of tensor ranks that is smaller than a node lies inside one", "per_node % tensor", "tensor > per_node"),
    ("tensor ranks anywhere", "if per_node % tensor or heads % tensor", "if heads % tensor"),
    ("heads are not looked at", "if per_node % tensor or heads % tensor", "if per_node % tensor"),
    ("layers are not looked at", "gpus % (tensor * pipeline) or layers % pipeline", "gpus % (tensor * pipeline)"),
    ("GPUs are left over", "gpus % (tensor * pipeline) or layers % pipeline", "layers % pipeline"),
    ("no single replica", "range(1, gpus // tensor + 1)", "range(1, gpus // tensor)"),
    ("another order", "pipeline), tensor, pipeline))", "pipeline), pipeline, tensor))"),
    ("no more tensor ranks than layers", "range(1, gpus + 1)", "range(1, layers + 1)"),
]


def possible_layouts(gpus, per_node, heads, layers):
    """Powers of two only."""
    degrees = [2**i for i in range(7)]
    return [
        (gpus // t // p, t, p)
        for t in degrees
        for p in degrees
        if gpus % (t * p) == per_node % t == heads % t == layers % p == 0
    ]
