"""The device type: tensors whose values the CPU holds, and the rules by which torch calls their operations.

api, api_streams, api_random, current       torch.sim; api_instead for what torch.cuda has and it has not
dispatch ── operands, records, rules, result_sizes, shapes, fused    runs an operation, checked, counted and timed
   ├── tensor ── storage, exchange          the shell that torch sees, the real tensor inside
   ├── copies_and_factories, random         copies, new tensors, random numbers
   └── unsupported                          what is refused, in a sentence
guard ── signals                            errors and Ctrl-C where torch's C++ may not throw
gpus ── state                               changing the GPUs that there are; the GPUs that there are
"""
