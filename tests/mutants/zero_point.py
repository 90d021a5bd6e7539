# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("zero is left out, above", "max(x.max().item(), 0.0)", "x.max().item()"),
    ("zero is left out, below", "min(x.min().item(), 0.0)", "x.min().item()"),
    ("symmetric", "min(x.min().item(), 0.0)", "-x.abs().max().item()"),
    ("zeros divide", " or 1.0", ""),
    ("the wrong sign", "round(-low / scale)", "round(low / scale)"),
    ("a code too many", "codes.clamp(0, 255).int()", "codes.int()"),
    ("rounded twice, not to the nearest code", "torch.round(x / scale) + zero", "torch.round((x - low) / scale)"),
    ("255 codes, not 256", "/ 255", "/ 254"),
    ("256 steps, not 255", "/ 255", "/ 256"),
    ("not rounded", "torch.round(x / scale)", "x / scale"),
    ("the zero is rounded down", "round(-low / scale)", "int(-low / scale)"),
    ("the zero is rounded up", "round(-low / scale)", "-int(low // scale)"),
]
