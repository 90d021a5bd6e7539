"""Two machines on one: network namespaces joined by a cable, torchrun in each, as on two computers in a network.

    ┌ d2lmini-NUMBER-0 ┐    veth pair    ┌ d2lmini-NUMBER-1 ┐     python tools/two_machines.py -- --epochs 2
    │ 10.77.0.1        ├─────────────────┤ 10.77.0.2        │     python tools/two_machines.py --rate 100mbit -- …
    │ torchrun, rank 0 │                 │ torchrun, rank 1 │     arguments after -- are those of d2lmini.train
    └──────────────────┘                 └──────────────────┘

Each has process numbers of its own, too. Needs Linux, root, the programs `ip` of iproute2 and `unshare` of util-linux,
and `tc` for a slower cable. What it made is removed at the end, whatever happens. Files are common to both, as in a
folder that two computers share.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ADDRESSES, PORT = ("10.77.0.1", "10.77.0.2"), 29400
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")  # no process sees one of the other machine
ROOT = Path(__file__).resolve().parent.parent


class Missing(RuntimeError):
    """The system does not allow two machines; the message says what is missing."""


class TwoMachines:
    """The two namespaces with their cable, as a context.

    rate: the most that the cable carries in each direction, in tc's words, such as "100mbit": megabits a second.
    Raises ValueError for another way to write it, Missing where the system does not allow it.
    """

    def __init__(self, rate=None):
        """Note what to make."""
        self.names = [f"d2lmini-{os.getpid()}-{i}" for i in range(2)]
        self.ends = [f"d2l{os.getpid()}{i}"[:15] for i in "ab"]
        self.rate, self.folder = rate, None
        if rate:
            burst(rate)  # before anything is made

    def __enter__(self):
        """Make the namespaces, lay the cable, and give each end its address."""
        if not shutil.which("ip") or os.geteuid() != 0:
            raise Missing("needs root and the program ip, of the package iproute2")
        try:
            for name in self.names:
                command("ip", "netns", "add", name)
            command("ip", "link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
            for name, end, address in zip(self.names, self.ends, ADDRESSES, strict=True):
                self._connect(name, end, address)
            command("ip", "netns", "exec", self.names[0], *APART, "true")
            self.folder = tempfile.TemporaryDirectory(prefix="d2lmini-", ignore_cleanup_errors=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self, name, end, address):
        command("ip", "link", "set", end, "netns", name)
        inside = ("ip", "-n", name)
        command(*inside, "address", "add", f"{address}/24", "dev", end)
        command(*inside, "link", "set", end, "up")
        command(*inside, "link", "set", "lo", "up")
        if self.rate:
            bucket = ("tbf", "rate", self.rate, "burst", str(burst(self.rate)), "latency", "100ms")
            command("tc", "-n", name, "qdisc", "add", "dev", end, "root", *bucket)

    def __exit__(self, *exc):
        """End what still runs in the namespaces, and remove them; with them go the ends of the cable."""
        for name in self.names:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for number in found.split():
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self.ends[0]], capture_output=True, check=False)
        if self.folder:
            self.folder.cleanup()

    def start(self, i, words, program=("-m", "d2lmini.train"), options=()):
        """Start torchrun with one process in namespace `i`; options: more of torchrun's own.

        The first is the meeting point. It must be told so: both have the computer's name, which is in neither network.
        """
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}",
            f"--rdzv-conf=is_host={i == 0}",
            f"--local-addr={ADDRESSES[i]}",
            *options,
            *program,
            *words,
        ]
        settings = {
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # torch warns of an address without a name
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }  # a store for each attempt
        environment = {**settings, **os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": self.folder.name}  # it leaves files
        command = ["ip", "netns", "exec", self.names[i], *APART, *map(str, torchrun)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def burst(rate):
    """Return how many bytes may leave at once: those of 5 ms, since some systems look at the time only every 4 ms.

    Raises ValueError for a rate that is no number of kbit, mbit or gbit.
    """
    number = re.fullmatch(r"([\d.]+)([kmg])bit", rate)
    if not number:
        raise ValueError(f"expected a rate such as 100mbit, in kbit, mbit or gbit, got {rate!r}")
    bits = float(number[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[number[2]]
    return max(16_384, int(bits / 8 * 0.005))


def command(*words):
    """Run a command. Raises Missing with what it said where it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing(f"needs the program {words[0]}") from None
    if done.returncode:
        raise Missing(f"{' '.join(words)}: {done.stderr.strip() or 'failed'}")


def train(words, rate=None, timeout=600):
    """Train on two machines of their own and return, for each, the exit code of torchrun and what it said."""
    with TwoMachines(rate) as machines:
        running = [machines.start(i, words) for i in range(2)]
        said = [process.communicate(timeout=timeout)[0] for process in running]
        return [(process.returncode, text) for process, text in zip(running, said, strict=True)]


def main():
    """Read the command line, train, and print what each machine said."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("two machines: ended by SIGTERM"))  # so that all is removed
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", help="of the cable in each direction, as tc writes it: 100mbit; by default unlimited")
    parser.add_argument("words", nargs="*", metavar="…", help="after --: the arguments of d2lmini.train")
    options = parser.parse_args()
    try:
        results = train(options.words, options.rate)
    except (Missing, ValueError) as error:
        sys.exit(f"two machines: {error}")
    for i, (code, text) in enumerate(results):
        print(f"-- machine {i}, {ADDRESSES[i]}: torchrun ended with exit code {code} --")
        print(text, end="")
    return max(abs(code) for code, _ in results)


if __name__ == "__main__":
    sys.exit(main())
