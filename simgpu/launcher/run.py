"""One run: the program on its ranks, their output, the exit code of the rank that failed first, the closing line."""

import contextlib
import functools
import random
import sys
import traceback

import torch

import simgpu
from simgpu.accounting.allocator import human
from simgpu.device.state import state
from simgpu.launcher import children, host_time
from simgpu.launcher.options import bytes_of, machine_of, nodes_of, ranks_of
from simgpu.launcher.output import of_rank
from simgpu.launcher.program import Program
from simgpu.launcher.recorder import Recorder
from simgpu.launcher.stand_ins import StandIns
from simgpu.ranks.errors import DeadlockError, MismatchError, RankError, Stopped
from simgpu.ranks.spawn import start
from simgpu.torch_glue.install import replaced

_SEED = 67280421310721  # of what the program does not seed: the same in every run
_INTERRUPTED = 130  # as a shell has it


def run(options):
    """Run the program that `options` name; return the exit code."""
    nodes = nodes_of(options)
    machine = machine_of(options, nodes)
    size = ranks_of(options, machine.node.count if nodes > 1 else machine.count) * nodes
    program = Program(options.training_script, options.training_script_args, options.module)
    memory = bytes_of(options.memory)
    simgpu.enable(machine=machine, memory=memory, shapes_only=options.shapes_only, mode=options.mode)
    _seed()
    program.prepare()
    recorder = Recorder(every_span=bool(options.trace or options.report), lines=bool(options.report))
    stand_ins = StandIns(_say) if options.shapes_only else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(simgpu.as_cuda())
        stack.enter_context(replaced(_entries(options, recorder, stand_ins)))
        stack.enter_context(recorder)
        state.stand_in = stand_ins
        code = _on_ranks(program, size, recorder, _shown(options.local_ranks_filter))
    _close(code, size, recorder, stand_ins)
    _write(options, recorder, stand_ins)
    return code


def _on_ranks(program, size, recorder, shown):
    def body(rank):
        with of_rank(rank, shown is None or rank in shown):
            try:
                with recorder.rank(rank), children.exits(recorder):
                    program(rank)
            except SystemExit as error:
                if isinstance(error.code, str):
                    print(error.code, file=sys.stderr)
                raise
            except Stopped:
                raise
            except BaseException as error:
                _show(error)
                raise

    try:
        start(body, nprocs=size, joined=False)
    except RankError as error:
        code = error.__cause__.code if isinstance(error.__cause__, SystemExit) else 1
        _say(f"rank {error.rank} failed first")
        return code if isinstance(code, int) else 1
    except (DeadlockError, MismatchError) as error:
        _say(f"{type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _entries(options, recorder, stand_ins):
    yield torch, "compile", functools.partial(_eagerly, torch.compile, options.shapes_only)
    yield torch.nn.Module, "compile", lambda module, *args, **kwargs: _note_compile()
    yield from children.entries(recorder)
    if not options.host_time:
        yield from host_time.entries()
    if stand_ins:
        yield torch, "save", stand_ins.save


def _eagerly(own, always, model=None, **options):
    """As ``torch.compile``, but run eagerly what inductor would write code for, or everything."""
    if not always and options.get("backend", "inductor") != "inductor":
        return own(model, **options)
    _note_compile()
    return model if model is not None else lambda function: function


@functools.cache
def _note_compile():
    _say("torch.compile: the program runs eagerly; --mode compiled says what compiled steps would take")


def _show(error):
    """Print an error as Python does, without the launcher's own frames."""
    trace = error.__traceback__
    while trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(simgpu.__path__[0]):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    if "DefaultCPUAllocator" in str(error):
        _say("the values do not fit into this computer's memory: --shapes-only runs programs of any size without them")


def _seed():
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED % 2**32)


def _shown(text):
    return {int(rank) for rank in text.split(",")} if text else None


def _say(line):
    print(f"simgpu: {line}", file=sys.__stderr__, flush=True)


def _close(code, size, recorder, stand_ins):
    peak, where = recorder.peak()
    parts = [
        f"{size} rank{'s' * (size > 1)} on simulated {simgpu.machine().name}",
        f"{recorder.seconds():.6g} simulated seconds",
        f"peak memory {human(peak)} on GPU {where}",
        f"{recorder.sent():,} bytes sent",
    ]
    if stand_ins and stand_ins.reads:
        parts.append(f"{stand_ins.reads.total()} numbers that the host read were stand-ins")
    _say("; ".join(parts) + (f"; exit code {code}" if code else ""))


def _write(options, recorder, stand_ins):
    if options.trace:
        recorder.trace.save(options.trace)
    if options.report:
        from simgpu.launcher import report

        report.write(options.report, recorder, stand_ins)
