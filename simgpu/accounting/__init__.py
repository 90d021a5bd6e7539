"""What is counted of simulated GPUs, with nothing replaced in torch: time and memory.

clock ── queues, trace    when work on a device begins and ends, and what happened
  ├── communication       what communication between GPUs occupies, and when
  └── fusion              what a compiled step does in one kernel
op_work ── gemms          what an operation computes and moves; the matrix multiplications in it
allocator                 what is allocated on a device, and its limit
"""
