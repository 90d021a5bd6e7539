"""Frames of the explorable on layouts: what a GPU holds, what a step takes, and the best ten layouts beside it."""

from d2lmini.figures.reuse_frames import Sheet

GIB = 2**30
BLUE, PALE, ORANGE, GREEN, PURPLE = "#1f77b4", "#9ecae9", "#f28e2b", "#59a14f", "#b07aa1"
MEMORY = {"weights": BLUE, "gradients": PALE, "optimizer": ORANGE, "activations": GREEN}
TIME = {"compute": GREEN, "tensor": PURPLE, "bubble": "#bab0ac", "data": ORANGE, "update": BLUE}


def layout_frame(memory: dict, capacity: float, seconds: dict, speed: float, best: list[float]) -> Sheet:
    """Return the drawing of one layout.

    Args:
        memory: Bytes by part, as `parallel.memory_bytes` returns them.
        capacity: The bytes that may be used.
        seconds: Seconds by part, as `parallel.step_seconds` returns them.
        speed: Tokens per second of each GPU.
        best: Those of the ten best layouts, the fastest first.
    """
    sheet, held, took = Sheet(470, 330), sum(memory.values()), sum(seconds.values())
    fits = "fits" if held <= capacity else "DOES NOT FIT"
    sheet.text(5, 18, f"memory: {held / GIB:,.0f} GiB of {capacity / GIB:.0f}: {fits}", "start", bold=True)
    scale = 460 / max(held, capacity)
    _bar(sheet, 26, memory, MEMORY, scale, lambda size: f"{size / GIB:,.0f}")
    sheet.box(5 + capacity * scale - 2, 20, 2, 32, "#1a1a1a")
    sheet.text(5, 116, f"a step: {took:,.2f} s, {speed:,.0f} tokens/s of each GPU", "start", bold=True)
    _bar(sheet, 124, seconds, TIME, 460 / took, lambda size: f"{size / took:.0%}")
    sheet.text(5, 214, "the ten best (blue) and this one, thousand tokens/s", "start", bold=True)
    bars = [(one, BLUE) for one in best] + [(speed, ORANGE if held <= capacity else "#d6453d")]
    for place, (one, colour) in enumerate(bars):
        height, left = round(70 * one / max(best[0], speed), 1), 8 + 42 * place
        sheet.box(left, 312 - height, 34, height, colour)
        sheet.text(left + 17, 307 - height, f"{one / 1e3:.1f}")
    return sheet


def _bar(sheet, top, parts, colours, scale, told):
    """Draw parts side by side, and under them each part's name and what is `told` of its size, three in a row."""
    left = 5.0
    for place, (name, colour) in enumerate(colours.items()):
        width = parts[name] * scale
        if width > 0:
            sheet.box(round(left, 1), top, round(width, 1), 22, colour)
        x, y = 5 + place % 3 * 155, top + 42 + place // 3 * 20
        sheet.box(x, y - 11, 12, 12, colour)
        sheet.text(x + 17, y, f"{name} {told(parts[name])}", "start")
        left += width
