"""How an operation on simulated GPUs runs: check the devices, run it on the real tensors, put wrappers on what is new.

For each operation (an ``OpOverload``) a plan is made once, from its schema: which arguments are tensors, which results
are new, views or arguments that were changed, whether it draws random numbers, whether the host must wait for it.
Nothing here knows single operations; those that differ are in `factories`, `copies`, `kernels` and `unsupported`. What
a call needs and costs is found at its first run, and read from its record whenever operands of these shapes come again.

Inputs on two devices raise torch's own error. Zero-dimensional host tensors may take part where CUDA lets them.
"""

import torch

from simgpu.device import placement_rules, signals
from simgpu.device.cost_cache import Records, fresh_bytes
from simgpu.device.kernels import KERNELS
from simgpu.device.operands import Operands
from simgpu.device.random import draw
from simgpu.device.result_shapes import Results, Sizes
from simgpu.device.signals import SIGINT, in_use
from simgpu.device.state import state
from simgpu.device.tensor import SimTensor, fresh, resync, unshare, wrap, wrap_counted
from simgpu.hardware.op_costs import INDEX_SHARE

_META = torch.device("meta")
_WAITS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_handlers = {}  # by ``func._op``, since the hash of `func` is a call of Python: function(func, args, kwargs)
_of_namespaces = {}  # what handles all operations of a namespace, those too that torch makes later


def dispatch(func, types, args=(), kwargs=None):
    """Run one operation: what torch calls as ``SimTensor.__torch_dispatch__``."""
    if in_use(SIGINT) is not signals.handler:
        signals.install()
    if len(types) > 1 and any(not issubclass(kind, SimTensor) for kind in types):
        return NotImplemented  # another class, such as a result to wait for, comes first: on a GPU it meets no wrapper
    handler = _handlers.get(func._op)
    if handler is None:
        handler = _handlers[func._op] = _handler(func)
    return handler(func, args, kwargs or {})


def handles(*funcs):
    """Make the decorated function the handler of these operations, in place of a plan."""

    def register(function):
        _handlers.update((func._op, function) for func in funcs)
        return function

    return register


def handles_namespaces(function, *names):
    """Make a function the handler of all operations of these namespaces."""
    _of_namespaces.update(dict.fromkeys(names, function))


def _handler(func):
    if func.namespace in _of_namespaces:
        return _of_namespaces[func.namespace]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    if composite and func not in KERNELS:
        return _composite
    plan = Plan(func)
    return plan.reshape if plan.reshapes else plan.run


def _composite(func, args, kwargs):
    """Run an operation that is made of others: it arrives here whole only in inference mode."""
    return func.decompose(*args, **kwargs)


@handles(torch.ops.aten.detach.default)
def _detach(func, args, kwargs):
    """Give a result to autograd's keeping: a view like any other, the most common one, and free on every clock.

    It shares the real tensor too, until one of the two changes its shape.
    """
    (x,) = args
    return wrap_counted(x._real, state.gpus[x._index])


class Plan:
    """What is known of one operation before it runs, and how to run it."""

    def __init__(self, func):
        schema, tags = func._schema, func.tags
        self.call, self.replaced = KERNELS.get(func, func._op), func in KERNELS
        self.on_host = placement_rules.RESULTS_ON_HOST.get(placement_rules.name(func), ())
        self.each = placement_rules.name(func).startswith("_foreach_")
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        self.changed = [argument.name for argument in written]
        # What an operation without a result writes. Fused optimizers write gradients only to undo a scaling.
        places = enumerate(schema.arguments)
        self.writes = [(place, a.name) for place, a in places if a.name in self.changed and a.name != "grads"]
        self.aliases = [_source(schema, r) for r in schema.returns]
        self.views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.reshapes = (
            torch.Tag.inplace_view in tags
            or schema.name in placement_rules.RESHAPES
            or (any(argument.kwarg_only for argument in written) and func.namespace != "fsdp")
        )  # ``out=``
        drawing = torch.Tag.nondeterministic_seeded in tags
        self.random = drawing and placement_rules.name(func) not in placement_rules.DRAW_NOTHING
        kinds = {str(r.type) for r in schema.returns}
        returns_numbers = any("Tensor" not in kind for kind in kinds - {"int"})  # a size is known without looking
        self.type_rule = placement_rules.type_rule(func.overloadpacket)
        self.indexes = placement_rules.name(func) in placement_rules.INDEXING
        self.waits = self.indexes or returns_numbers or not _WAITS.isdisjoint(tags)
        bare = placement_rules.name(func)
        self.part = bare if self.views and bare in placement_rules.PARTS else None  # a view that costs the host a call
        self.takes = not self.each and not self.views and (None in self.aliases or self.reshapes)  # new memory
        self.operands, self.records, self.sizes = Operands(func), Records(func, not self.reshapes), Sizes(func)
        new = not self.reshapes and set(self.aliases) == {None} and not self.on_host and not self.views
        self.results = Results() if new and self.records.keep else None  # as kept for operands without numbers
        self.in_place = self.aliases == [0]  # the most common case of a changed argument
        self.single = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor" and self.aliases == [None]

    def run(self, func, args, kwargs):
        """Run `func` and return its result as torch expects it."""
        if self.each and placement_rules.spread(args):
            return placement_rules.one_by_one(func, args, kwargs)
        counting, clock = self.takes and state.counting, None if self.views else state.clock  # no kernel makes a view
        key = [] if counting or clock is not None else None
        index, reals, named, hosts = self.operands.unwrap(args, kwargs, key)
        if self.type_rule:
            self.type_rule(reals)
        if hosts:
            placement_rules.check_hosts(func, args, kwargs)
            if self.indexes and state.clock is not None:
                placement_rules.bring_indices(args[1], index)
        gpu, record = state.gpus[index], None if key is None else self.records.find(key, reals)
        if counting:  # before the host's memory is taken
            if record.needs is None:
                self.sizes.check(func, self.call, reals, named, gpu.allocator)
            else:
                gpu.allocator.check(record.needs)
        if self.random:
            out = draw(func, self.call, reals, named, index, self.replaced)
        elif self.results is not None and state.real_device == _META:
            out = self.results.make(self.call, reals, named)
        else:
            out = self.call(*reals, **named)
        if counting and record.needs is None:
            record.needs = fresh_bytes(out, reals, named)
        if clock is not None:
            made = out if self.aliases else self._written(reals, named)
            if record.clock is not clock:
                record.cost, record.clock = clock.price(func, reals, named, made), clock
            clock.queue(index, record.cost, (func, reals, named, made) if clock.fuses else None)
            if self.waits and (not self.indexes or placement_rules.masks_are_counted(func, reals)):
                clock.wait_until(clock.current_stream(index).end, "stream synchronize")
        if not self.single:
            return args[0] if self.in_place else self._finish(out, args, kwargs, index)
        new = self._view(out, gpu) if self.views else fresh(out, gpu)
        if counting:
            gpu.allocator.add(out.untyped_storage())
        return new

    def _written(self, reals, named):
        return [reals[place] if place < len(reals) else named.get(name) for place, name in self.writes]

    def _view(self, out, gpu):
        if self.part and state.clock is not None:
            state.clock.call(gpu.index, self.part, INDEX_SHARE)
        return wrap_counted(out, gpu)

    def reshape(self, func, args, kwargs):
        """Run `func`, which may change the shapes of tensors that it is given, and make their wrappers follow."""
        given = [kwargs.get(name, args[0] if args else None) for name in self.changed]
        changed = [t for ts in given for t in (ts if isinstance(ts, (list, tuple)) else (ts,)) if type(t) is SimTensor]
        for tensor in changed:
            unshare(tensor)
        out = self.run(func, args, kwargs)
        for tensor in changed:
            follow(tensor)
        return out

    def _finish(self, out, args, kwargs, index):
        """Return the results: changed arguments as they were given, what is new in wrappers."""
        if not self.aliases:
            if self.each and self.changed == ["self"]:  # torch counts changes itself, but not those of lists
                torch.autograd.graph.increment_version(args[0])
            return None
        outs = (out,) if len(self.aliases) == 1 else out
        results = []
        for place, (real, source) in enumerate(zip(outs, self.aliases)):
            if place in self.on_host:
                results.append(real)
            elif source is None:
                results.append(_outer(real, index, self.views))
            else:
                results.append(kwargs[source] if isinstance(source, str) else args[source])
        return results[0] if len(self.aliases) == 1 else tuple(results)


def follow(tensor):
    """Make a wrapper and the memory's count follow a real tensor that changed its shape or its storage's size."""
    if state.counting:
        state.gpus[tensor._index].allocator.add(tensor._real.untyped_storage())
    resync(tensor)


def _outer(real, index, view):
    if isinstance(real, torch.Tensor):
        return wrap_counted(real, state.gpus[index]) if view else wrap(real, index)
    if isinstance(real, (list, tuple)):
        return [_outer(r, index, view) for r in real]
    return real


def _source(schema, result):
    """Return which argument a result is, a place or a keyword, or None if it is a tensor of its own."""
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & result.alias_info.before_set:
            return argument.name if argument.kwarg_only else place
    return None


SimTensor.__torch_dispatch__ = staticmethod(dispatch)
