"""The command line: anyone's program on simulated GPUs, each rank a fresh process, and what a cluster would report.

commands          simgpu run, smi, machines, features, doctor
  ├── options     what torchrun takes, and which machine is simulated
  ├── run         the program's run: its ranks, their output, the exit code, the closing line
  │     ├── program      one rank's __main__
  │     ├── output       lines with [rank0]: in front
  │     ├── host_time    the time that a program reads: that of the simulated clock
  │     ├── stand_ins    --shapes-only: what stands for numbers that the host reads
  │     └── report       busy, idle, exposed communication, memory, bytes, waits
  │           └── page   the same as one HTML page
  └── describe    what there is: the table of GPUs, machines, features, this torch
"""
