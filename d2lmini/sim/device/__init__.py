"""The device type: tensors whose values the CPU holds, and the rules by which torch calls their operations.

    register ── api, api_streams, api_random    makes `sim` known to torch; torch.sim
    dispatch ── rules, result_sizes, fused      runs an operation, checked, counted and on the clock
       ├── tensor ── storage                    the shell that torch sees, the real tensor inside
       ├── copies_and_factories, random         copies, new tensors, random numbers
       └── unsupported                          what is refused, in a sentence
    state                                       the GPUs that there are
"""
