"""Wrong answers to the exercise separable-macs, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the depthwise one has an output for each of the outputs", "inputs * kernel**2", "outputs * kernel**2"),
    ("the kernel is counted along one side", "kernel**2", "kernel"),
    ("the pointwise one is forgotten", "(depthwise + pointwise)", "depthwise"),
    ("the depthwise one is forgotten", "(depthwise + pointwise)", "pointwise"),
    ("the depthwise one sees all channels", "inputs * kernel**2", "inputs * inputs * kernel**2"),
    ("the pointwise one has a window too", "inputs * outputs", "inputs * outputs * kernel**2"),
    ("FLOPs in place of MACs", "return height", "return 2 * height"),
    ("the picture shrinks as without padding", "height * width *", "(height - kernel + 1) * (width - kernel + 1) *"),
    ("a text", "return height * width * (depthwise + pointwise)", "return str(depthwise + pointwise)"),
    ("one too many", "(depthwise + pointwise)", "(depthwise + pointwise) + 1"),
    ("nothing is returned", "return height", "height"),
]
