"""Figures about copies and timelines: what stands on the axes, where the dots lie, and who is named in the legend."""

import re

import pytest
import torch
import torch.distributed as dist

import simgpu
from d2lmini.figures import copy_figures, plots, timeline_figures
from d2lmini.measuring import transfers


def labels(axis):
    axis.axes.figure.draw_without_rendering()
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.fixture
def copies():
    simgpu.enable(2)
    return transfers.measure_route(transfers.Route(torch.device("cpu"), torch.device("sim:0")), most=2**20)


@pytest.fixture
def shown(monkeypatch):
    """The calls that would show a figure; two GPUs."""
    simgpu.enable(2)
    calls = []
    monkeypatch.setattr(plots, "show", lambda *call: calls.append(call))
    return calls


def test_rates_are_bytes_by_seconds_with_their_names(copies):
    figure = copy_figures.rates({"one": (copies.sizes, copies.seconds)}, [(2**15, 2e9, "half")])
    (ax,) = figure.axes
    curve, dot = ax.lines
    assert list(curve.get_ydata()) == pytest.approx([n / t / 1e9 for n, t in zip(copies.sizes, copies.seconds)])
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (2**15, 2)
    assert {text.get_text() for text in ax.texts} == {"one", "half"}
    assert {"1 KiB", "32 KiB", "1 MiB"} <= set(labels(ax.xaxis))
    assert sum(bool(re.fullmatch("[0-9.]+", label)) for label in labels(ax.yaxis)) > 1


def test_rates_of_two_and_a_half_powers_of_ten_can_be_read_off():
    (ax,) = copy_figures.rates({"": ([2**10, 2**20, 2**26], [2**10 / 0.3e9, 2**20 / 30e9, 2**26 / 7e9])}).axes
    assert {"0.5", "1", "2", "5", "10", "20"} <= set(labels(ax.yaxis))


def test_names_beside_lines_are_dark_enough_to_read(copies):
    curves = dict.fromkeys(("one", "two", "three"), (copies.sizes, copies.seconds))
    (ax,) = copy_figures.rates(curves, [(2**15, 2e9, "half")]).axes
    colors = [text.get_color() for text in ax.texts]
    assert len(colors) == 4
    assert [plots.ink(color) for color in colors] == colors


def test_timelines_share_one_axis_of_time_and_one_legend(shown):
    x = torch.ones(2**18)

    def long_copy():
        x.to("sim:0")

    def a_sum():
        torch.ones(4, device="sim:1").sum()

    traces = timeline_figures.show_timelines(long_copy, a_sum)
    ((figure, alt),) = shown
    assert [ax.get_xlim() for ax in figure.axes] == [figure.axes[0].get_xlim()] * 2
    assert [ax.get_title(loc="left").split(":")[0] for ax in figure.axes] == ["long copy", "a sum"]
    named = {text.get_text() for text in figure.legends[0].texts}
    assert named == {"copy on a link", "wait of the host", "launch by the host", "operation on the GPU"}
    assert [{span.kind for span in trace.spans} for trace in traces] == [{"copy", "wait"}, {"launch", "operation"}]
    assert "long copy, simulated on" in alt
    assert "a sum, simulated on" in alt


def test_a_part_of_a_trace_is_what_happens_between_two_moments(shown):
    with simgpu.trace() as trace:
        torch.ones(2**18).to("sim:0")
        torch.sim.synchronize()
        begin = simgpu.now()
        torch.ones(4, device="sim:1").sum()
        torch.ones(2**18).to("sim:1")
    later = timeline_figures.part(trace, begin)
    assert {span.place for span in later.spans} == {"host", "gpu1", "PCIe gpu1 in"}
    assert later.begin_s == pytest.approx(begin)
    assert later.seconds == pytest.approx(trace.begin_s + trace.seconds - begin)
    computed = timeline_figures.part(trace, begin, later.spans[-1].start_s, links=False)
    assert {span.place for span in computed.spans} == {"host", "gpu1"}
    timeline_figures.show_traces({"all": trace, "later": later}, "what is seen")
    ((figure, alt),) = shown
    assert alt == "what is seen"
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["host", "gpu1", "PCIe gpu1 in"]


def test_a_phase_is_named_in_its_middle_and_every_other_one_is_shaded(shown):
    with simgpu.trace() as trace:
        torch.ones(2**18, device="sim:1").sum()
        torch.sim.synchronize(1)
    half = trace.seconds / 2
    timeline_figures.show_traces({"all": trace}, "", phases=[("first", 0.0), ("second", half)])
    panel = shown[0][0].axes[0]
    width = panel.get_xlim()[1]
    middles = {text.get_text(): text.get_position()[0] / width for text in panel.texts}
    assert middles == {"first": pytest.approx(0.25), "second": pytest.approx(0.75)}
    plain, grey = [(span.get_alpha(), span.get_x() / width) for span in panel.patches]
    assert plain == (0, pytest.approx(0))
    assert grey[0] > 0
    assert grey[1] == pytest.approx(0.5)


def test_streams_are_counted_by_what_they_did(shown):
    with simgpu.trace() as trace:
        torch.ones(4, device="sim:1").sum()
    [*_, last] = trace.spans
    trace.spans += [
        last._replace(place=place, row=row) for place, row in [("gpu0", 3), ("gpu1", 2), ("gpu1", 5), ("gpu1", 6)]
    ]
    timeline_figures.show_traces({"all": trace}, "")
    names = [label.get_text() for label in shown[0][0].axes[0].get_yticklabels()]
    streams = ["gpu0 2nd stream", "gpu1", "gpu1 2nd stream", "gpu1 3rd stream", "gpu1 4th stream"]
    assert names == ["host", *streams]


def test_the_hosts_of_ranks_are_named_after_their_gpus(monkeypatch):
    shown = []
    monkeypatch.setattr(timeline_figures.plots, "show", lambda *call: shown.append(call))
    simgpu.enable(2)
    with simgpu.trace() as trace:
        simgpu.spawn(lambda rank: torch.ones(4, device="sim").sum(), nprocs=2)
    timeline_figures.show_traces({"all": timeline_figures.part(trace, trace.begin_s, links=False)}, "")
    names = [label.get_text() for label in shown[0][0].axes[0].get_yticklabels()]
    assert names == ["host of gpu0", "host of gpu1", "gpu0", "gpu1"]


def test_a_trace_is_read_back_joined_and_searched_for_exposed_collectives(tmp_path, shown):
    def step(rank):
        dist.all_reduce(torch.ones(2**20, device="sim"))
        y = torch.ones(2**20, device="sim").exp()
        work = dist.all_reduce(torch.ones(2**24, device="sim"), async_op=True)
        y.exp().exp()
        work.wait()

    with simgpu.trace() as trace:
        simgpu.spawn(step)
    trace.save(tmp_path / "trace.json")
    read = timeline_figures.read_trace(tmp_path / "trace.json")
    assert read.seconds == pytest.approx(trace.seconds)
    assert read.busy_seconds() == pytest.approx(trace.busy_seconds())
    assert sorted(span[:4] for span in read.spans) == sorted(span[:4] for span in trace.spans)
    collectives = sum(s.seconds for s in trace.spans if (s.kind, s.place) == ("communication", "gpu0"))
    both = timeline_figures.joined(read, 1)
    assert len(both.spans) == len({(s.kind, s.place, s.row) for s in trace.spans})
    alone = sum(end - begin for begin, end in timeline_figures.exposed_intervals(read))
    spans = [
        (s.start_s, s.end_s) for s in trace.spans if s.place == "gpu0" and s.kind in ("communication", "operation")
    ]
    covered, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        covered, reached = covered + max(0.0, end - max(begin, reached)), max(end, reached)
    assert 0 < alone < collectives
    assert alone == pytest.approx(covered - trace.busy_seconds()["gpu0"])
    timeline_figures.show_traces({"all": read}, "", shades=[timeline_figures.exposed_intervals(read)])
    assert len(shown[0][0].axes[0].patches) == len(timeline_figures.exposed_intervals(read))
