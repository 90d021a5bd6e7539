"""Two processes that a program starts meet at a barrier, a lock, an event and pipes of torch.multiprocessing."""

import torch.multiprocessing as mp


def work(rank, pipe, event, barrier, lock, total):
    barrier.wait()
    with lock:
        total.value += rank
    if rank == 0:
        event.set()
    event.wait()
    pipe.send((rank, pipe.recv()))


if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Event(), context.Barrier(2), context.Lock(), context.Value("i", 10)
    pipes = [context.Pipe() for _ in range(2)]
    children = [context.Process(target=work, args=(rank, pipes[rank][1], *shared)) for rank in range(2)]
    for child, (end, _) in zip(children, pipes):
        child.start()
        end.send("hello")
    print([end.recv() for end, _ in pipes], shared[3].value)
