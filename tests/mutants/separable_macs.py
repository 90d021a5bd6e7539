EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the depthwise one has an output for each of the outputs", "inputs * kernel**2", "outputs * kernel**2"),
    ("the kernel is counted along one side", "kernel**2", "kernel"),
    ("the pointwise one is forgotten", "(depthwise + pointwise)", "depthwise"),
    ("a text", "return height * width * (depthwise + pointwise)", "return str(depthwise + pointwise)"),
    ("nothing is returned", "return height", "height"),
]
