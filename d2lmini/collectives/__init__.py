"""Collectives between devices: written as data, run, counted, and priced.

schedules/    who sends which chunk to whom, step by step: no tensor, no device, no clock
    ├── cost_model                                what a schedule should take on a machine
executor ──── operands (what may be combined)     carries out a schedule over tensors, one on each device
    │
on_devices ── ledger                              the same, with a record of the messages that were sent
buckets                                           many small tensors in few messages
"""

from d2lmini.collectives.on_devices import allreduce, run

__all__ = ["allreduce", "run"]
