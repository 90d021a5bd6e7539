import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from simgpu.accounting.clock import Clock
from simgpu.accounting.trace import COLOURS, Span, Trace
from simgpu.hardware.machines import build


def do(clock, device=0):
    x = torch.empty(4096, 4096, device="meta")
    clock.operation(device, torch.ops.aten.mm.default, (x, x), {}, x)


@pytest.fixture
def clock():
    return Clock(build(2, "GTX 1080"))


@pytest.mark.parametrize(
    ("intervals", "length"),
    [
        ([], 0),
        ([(5, 5)], 0),
        ([(1, 3)], 2),
        ([(1, 3), (2, 5)], 4),
        ([(1, 9), (2, 3)], 8),
        ([(4, 6), (1, 2)], 3),
        ([(0, 1), (1, 2), (1, 2)], 2),
    ],
)
def test_a_device_is_busy_while_one_of_its_streams_runs_an_operation(clock, intervals, length):
    trace = Trace(clock)
    trace.spans = [Span("operation", "gpu1", 0, "mm", begin * 10**12, end * 10**12, 0) for begin, end in intervals]
    trace.spans.append(Span("copy", "gpu0", 0, "x", 0, 10**12, 9))
    assert trace.busy_seconds() == {"gpu0": 0, "gpu1": length}


def test_busy_and_idle_fill_the_time(clock):
    with clock.trace() as trace:
        do(clock, 0)
        clock.synchronize()
        clock.advance(1)
        do(clock, 1)
        do(clock, 1)
    busy, idle = trace.busy_seconds(), trace.idle_seconds()
    assert busy["gpu1"] == 2 * busy["gpu0"] > 0
    assert [busy[gpu] + idle[gpu] for gpu in ("gpu0", "gpu1")] == pytest.approx([trace.seconds] * 2)
    assert trace.seconds > 1


def test_work_queued_inside_counts_to_its_end_and_work_outside_does_not(clock):
    do(clock)
    with clock.trace() as trace:
        do(clock)
    do(clock)
    assert [span.kind for span in trace.spans] == ["launch", "operation"]
    assert trace.end == trace.spans[-1].end > clock.now_ps()


def test_an_empty_trace(clock):
    with clock.trace() as trace:
        pass
    assert (trace.spans, trace.seconds, trace.link_bytes()) == ([], 0, {})
    assert trace.busy_seconds() == trace.idle_seconds() == {"gpu0": 0, "gpu1": 0}
    trace.draw(Figure().subplots())


def test_bytes_of_every_wire_a_copy_crosses(clock):
    with clock.trace() as trace:
        clock.copy(None, 0, 100, True, False)
        clock.copy(None, 0, 10, False, True)
        clock.copy(0, 1, 7, False, False)
    assert trace.link_bytes() == {"PCIe gpu0 in": 110, "PCIe gpu0 out": 7, "PCIe gpu1 in": 7}


def test_work_of_the_host_and_beside_it_is_told_from_waiting(clock, tmp_path):
    with clock.trace() as trace:
        clock.advance(1e-6, "reading")
        first = clock.beside(2, 1e-6, "another process")
        clock.wait_until(clock.beside(2, 1e-6, "another process", after=first), "the other")
        clock.advance(0)
    clock.beside(2, 1, "after the block")
    assert [(s.kind, s.row, s.name, s.start, s.end) for s in trace.spans] == [
        ("work", 0, "reading", 0, 1_000_000),
        ("wait", 0, "the other", 1_000_000, 3_000_000),
        ("work", 2, "another process", 1_000_000, 2_000_000),
        ("work", 2, "another process", 2_000_000, 3_000_000),
    ]
    assert [(s.start_s, s.end_s, s.seconds) for s in trace.spans][1] == pytest.approx((1e-6, 3e-6, 2e-6))
    assert clock.now_ps() == 3_000_000
    trace.save(tmp_path / "trace.json")
    drawn = trace.draw(Figure().subplots())
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["host", "host thread 2"]


def test_traces_nest_and_end_with_an_error(clock):
    with clock.trace() as outer:
        do(clock)
        with contextlib.suppress(KeyError), clock.trace() as inner:
            do(clock)
            raise KeyError
        do(clock)
    do(clock)
    assert (len(outer.spans), len(inner.spans), clock.traces) == (6, 2, ())


def test_spans_come_in_one_order_whatever_threads_do():
    def run(order):
        clock = Clock(build(2, "GTX 1080"))
        with clock.trace() as trace:
            for device in order:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(do, clock, device)
        return trace.spans

    spans = run([0, 1])
    assert spans == run([1, 0])
    assert {(span.row, span.place) for span in spans} == {(1, "host"), (2, "host"), (0, "gpu0"), (0, "gpu1")}


def test_chrome_trace_has_named_rows_and_microseconds(clock, tmp_path):
    with clock.trace() as trace:
        do(clock)
        clock.copy(None, 1, 10**6, True, True)
    trace.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    place = " (simulated 2 × GTX 1080, PCIe3-x16)"
    assert [names[span["pid"]] for span in spans] == [span.place + place for span in trace.spans]
    product, copy = (next(span for span in spans if span["cat"] == kind) for kind in ("operation", "copy"))
    assert (product["name"], copy["args"]["bytes"]) == ("mm", 10**6)
    assert product["ts"] * 1e6 == pytest.approx(next(s.start for s in trace.spans if s.kind == "operation"))
    assert product["dur"] == pytest.approx(trace.busy_seconds()["gpu0"] * 1e6)


def test_figure_has_a_line_for_each_row_and_a_bar_for_each_span(clock):
    with clock.trace() as trace:
        do(clock)
        clock.set_stream(clock.stream(0))
        clock.copy(None, 0, 10**6, True, True)
    axes = trace.draw(Figure().subplots())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["host", "gpu0 stream 0", "PCIe gpu0 in"]
    assert sum(len(bars.get_paths()) for bars in axes.collections) == len(trace.spans)
    assert axes.get_xlabel() == "simulated time on 2 × GTX 1080, PCIe3-x16 (ms)"


def test_a_bar_too_short_to_see_is_made_wider_in_its_own_colour(clock):
    with clock.trace() as trace:
        clock.advance(1e-9, "short")
        clock.advance(1e-8, "not quite as short")
        clock.advance(1e-6, "long")
    [bars] = trace.draw(Figure().subplots()).collections
    [[face], [*short, long]], widths = (bars.get_facecolor(), bars.get_edgecolor()), bars.get_linewidth()
    assert [tuple(edge) for edge in (*short, long)] == [tuple(face), tuple(face), (1, 1, 1, 1)]
    assert widths[0] > 0.8 > widths[2] > widths[1] == 0


def test_what_two_ranks_send_is_called_a_message_and_what_all_do_a_collective(clock):
    trace = Trace(clock)
    trace.spans = [
        Span("communication", "gpu0", row, name, 0, 1, 9)
        for row, name in enumerate(["send 0→1 in the default group", "all_reduce, ring Simple"])
    ]
    labels = [bars.get_label() for bars in trace.draw(Figure().subplots()).collections]
    assert labels == ["message", "collective"]


def test_a_legend_has_one_order_whatever_came_first(clock):
    trace = Trace(clock)
    for kinds in (["wait", "launch", "work"], ["work", "wait", "launch"]):
        trace.spans = [Span(kind, "host", 0, "", i, i + 1, 0) for i, kind in enumerate(kinds)]
        labels = [bars.get_label() for bars in trace.draw(Figure().subplots()).collections]
        assert labels == ["launch by the host", "work of the host", "wait of the host"]


def test_bars_can_be_told_from_white():
    def light(colour):
        parts = [part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts))

    assert {kind for kind, colour in COLOURS.items() if 1.05 / (light(colour) + 0.05) < 3} == set()
