"""The device type: tensors whose values the CPU holds, and the rules by which torch calls their operations.

api ── streams, random, state    torch.sim: what torch.cuda has; the GPUs that there are, and which is current
gpu_list                         more or fewer GPUs, with nothing on them lost
dispatch                         runs an operation: checked, counted, timed
  ├── tensor ── tensor_swap      the wrapper that torch sees, the real tensor inside, its storage
  ├── operands, cost_cache       a call's real tensors; what a call of these shapes needs and costs
  ├── placement_rules            which operands may be on another device
  ├── result_shapes              how large results get, before they are made
  ├── kernels, sync_batch_norm   operations that run otherwise on the real tensors
  └── attention                  scaled_dot_product_attention as one kernel
factories, copies                new tensors; copies, item(), storages
unsupported                      what is refused, in one line each
guard ── signals                 torch's device guard; Ctrl-C where torch's C++ may not throw
"""
