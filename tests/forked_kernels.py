"""Kernels for the notebooks of `make test`, forked from one process that has imported what each of them imports.

torch, Matplotlib and IPython take 2 s to import, in each of the notebooks' kernels. A fork has them loaded; no name of
them stands in a cell's namespace before the cell imports it, and of this project's own code nothing is loaded. The
stored outputs come from kernels that `tools/chapters.py` starts the usual way, so the two are compared.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

LOADED = (
    *("ipykernel.kernelapp", "ipywidgets", "matplotlib.pyplot", "matplotlib_inline.backend_inline"),
    *("torch", "torch.fx.experimental.symbolic_shapes"),
)


class Fork:
    """What a provisioner asks of its `subprocess.Popen`, of a process that is not this one's child."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid, self._fd = pid, os.pidfd_open(pid)

    def poll(self):
        return 0 if select.select([self._fd], [], [], 0)[0] else None

    def wait(self):
        select.select([self._fd], [], [])
        return 0

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)


class ForkingProvisioner(LocalProvisioner):
    """Starts kernels by a line to the process that forks, which ends when nobody can write to it any more."""

    forking = None

    async def launch_kernel(self, cmd, **options):
        if not self.forking:
            pipe = subprocess.PIPE
            type(self).forking = subprocess.Popen(
                [sys.executable, __file__], stdin=pipe, stdout=pipe, text=True, start_new_session=True
            )
        request = {"arguments": cmd[2:], "folder": options["cwd"], "environment": options["env"]}
        print(json.dumps(request), file=self.forking.stdin, flush=True)
        self.process = Fork(int(self.forking.stdout.readline()))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def use():
    """Let nbval's kernels be forked."""
    from nbval import kernel

    found = kernel.NbvalKernelspecManager.get_kernel_spec

    def forking_spec(self, kernel_name):
        spec = found(self, kernel_name)
        spec.metadata["kernel_provisioner"] = {"provisioner_name": "forking"}
        return spec

    kernel.NbvalKernelspecManager.get_kernel_spec = forking_spec
    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forking"] = EntryPoint("forking", f"{__name__}:{ForkingProvisioner.__name__}", "")


def next_request():
    """Fork for every line of the standard input; return what it says in the fork."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        print(pid, flush=True)
    sys.exit()


def main():
    del sys.path[0]  # this folder
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a fork need not copy what the garbage collector would only look at
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks
    request = next_request()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.environ.clear()
    os.environ.update(request["environment"], JPY_PARENT_PID=str(os.getppid()))
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    sys.modules["numpy"].random.seed()  # not what its siblings have
    sys.modules["ipykernel.kernelapp"].launch_new_instance()


if __name__ == "__main__":
    main()
