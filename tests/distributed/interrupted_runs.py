"""Run a function in two processes, then one that hangs, twice: the test interrupts the first and kills the second."""

from rank_functions import misbehave

from d2lmini.distributed import run


def double(rank):
    return 2 * rank


if __name__ == "__main__":
    print(run(double, 2), flush=True)
    try:
        run(misbehave, 2, 1, "hangs")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        run(misbehave, 2, 1, "hangs")
