"""Several programs for two ranks, one after the other in the same processes: what starts real ones takes seconds."""

import contextlib
import gc
import os
import runpy
import sys
import time

folder = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, folder)
out, port = sys.argv[1], 10_000 + os.getppid() % 20_000  # below those that the system gives away, such as to gloo
for number, (name, arguments) in enumerate(
    (
        ("ddp", []),
        ("train", [f"--out_dir={out}"]),
        ("pipeline", []),
        ("fsdp", [f"--folder={out}/checkpoint"]),
    )
):
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # it still has what the program before has left there
    os.environ["MASTER_PORT"] = str(port + number)
    sys.argv = [f"{name}.py", *arguments]
    with contextlib.suppress(SystemExit):
        runpy.run_path(os.path.join(folder, f"{name}.py"), run_name="__main__")
    # A DDP that is collected in the next program ends gloo's threads, while one may still wait for Python's lock.
    time.sleep(0.2)
    gc.collect()
    print(f"{name} ended", flush=True)
