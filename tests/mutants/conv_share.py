EDITS = [
    ("the kernel counts once", "kernel**2", "kernel"),
    ("a square output", "height * width", "height**2"),
    ("parameters", " * height * width", ""),
    ("in percent", "return conv", "return 100 * conv"),
    ("the dense layers' share", "return conv /", "return dense /"),
    ("compared with the dense layers alone", "conv / (conv + dense)", "conv / (dense or 1)"),
]
