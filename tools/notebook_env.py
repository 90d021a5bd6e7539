"""The environment that notebooks are executed, stored and compared in; `notebook_env.py COMMAND …` runs one in it."""

import os
import platform
import sys

# A floating-point sum depends on how many threads share it and on the instructions of the processor. These settings
# make it the same on x86 machines of the last ten years; on others the third and fourth say nothing.
ENVIRONMENT = {
    # One thread: every machine has it, and the notebooks run two at a time on two cores.
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2" if platform.machine().lower() in ("x86_64", "amd64") else "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "PYTHONHASHSEED": "0",
    # A warning of the C++ library would bring the time and a thread into the output.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # Where this is set, each of a hundred processes compiles the package again, and pytest all tests and the package.
    "PYTHONDONTWRITEBYTECODE": "",
    # A progress bar is of no use in a stored output.
    "TQDM_DISABLE": "1",
    # The stored outputs are those of simulated GPUs, the same on every machine.
    "D2LMINI_DEVICES": "sim",
}

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: notebook_env.py COMMAND [ARGUMENT ...]")
    os.execvpe(sys.argv[1], sys.argv[1:], {**os.environ, **ENVIRONMENT})
