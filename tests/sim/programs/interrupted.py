"""Interrupt backward passes at any place fifty times: no tensor may be left or miscounted."""

import gc
import os
import signal
import threading
import time

import torch

import simgpu
from simgpu.device import gpu_list

simgpu.enable(2, clock=False)
x = torch.ones(50, 50, device="sim:1", requires_grad=True)
caught, wanted, end = 0, threading.Event(), time.monotonic() + 60


def interrupt():  # one at a time, at any place of the loop below: most of it is backward
    while True:
        if wanted.wait(5):  # else the last one was lost, in a function whose errors Python ignores
            wanted.clear()
        if over:
            return
        time.sleep(0.004)
        os.kill(os.getpid(), signal.SIGINT)


over, thread = False, threading.Thread(target=interrupt)
thread.start()
while caught < 50 and time.monotonic() < end:
    try:
        wanted.set()
        while True:
            y = x
            for _ in range(20):
                y = (y @ x).tanh()
            y.sum().backward()
            x.grad = None
    except KeyboardInterrupt:
        caught += 1
over = True
wanted.set()
thread.join()
there = {
    storage._cdata: -(-storage.nbytes() // 512) * 512
    for storage in (tensor._real.untyped_storage() for tensor in gpu_list.tensors())
}
counted = torch.sim.memory_allocated(1)
del y
x.grad = None
gc.collect()
left = torch.sim.memory_allocated(1)  # x alone: no interrupt left a frame behind, and with it its tensors
right = caught > 30 and counted == sum(there.values()) and left == 10240
print("interrupted" if right else f"{caught} interrupts, {counted} bytes counted, there are {there}, {left} stay")
