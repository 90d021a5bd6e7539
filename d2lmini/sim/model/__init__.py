"""What simulated GPUs are, with nothing replaced in torch.

    clock ── streams, threads, timeline    when work on a device begins and ends, and what happened
    work                                   what an operation computes and moves
    memory                                 what is allocated on a device, and its limit
"""
