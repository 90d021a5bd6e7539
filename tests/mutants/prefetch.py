EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("work on the last batch does not wait", "        module.current_stream(device).wait_event(upcoming[1])\n", ""),
    ("memory still in use is given away", "        copying.wait_stream(module.current_stream(device))\n", ""),
    ("one stream for everything", "module.Stream(device)", "module.current_stream(device)"),
    ("the host waits for the event", "module.current_stream(device).wait_event(ready[1])", "ready[1].synchronize()"),
    (
        "no batch is ever let go",
        "            return copied, ",
        "            fetch.kept = [*getattr(fetch, 'kept', []), copied]\n            return copied, ",
    ),
    ("the last batch is dropped", "        yield upcoming[0]\n", "        pass\n"),
    ("a stream of the current device", "module.Stream(device)", "module.Stream()"),
    (
        "the current device's stream waits",
        "            module.current_stream(device).wait_event(ready[1])",
        "            module.current_stream().wait_event(ready[1])",
    ),
]


def prefetch(batches, device):
    """All batches up front, each in memory of its own."""
    copying, main = torch.sim.Stream(device), torch.sim.current_stream(device)
    with torch.sim.stream(copying):
        there = [(batch.to(device, non_blocking=True), copying.record_event()) for batch in batches]
    for batch, arrived in there:
        batch.record_stream(main)
        main.wait_event(arrived)
        yield batch


def prefetch(batches, device):
    """Two buffers, with the event before the yield: the work that it should stand behind is not queued yet."""
    copying, main = torch.sim.Stream(device), torch.sim.current_stream(device)
    buffers = [torch.empty_like(batch, device=device) for batch in batches[:2]]
    free, upcoming = [torch.sim.Event(), torch.sim.Event()], None
    for i, batch in enumerate(batches):
        copying.wait_event(free[i % 2])
        with torch.sim.stream(copying):
            there = buffers[i % 2][: len(batch)].copy_(batch, non_blocking=True)
            ready, upcoming = upcoming, (there, copying.record_event(), free[i % 2])
        if ready is not None:
            main.wait_event(ready[1])
            ready[2].record(main)
            yield ready[0]
    if upcoming is not None:
        main.wait_event(upcoming[1])
        yield upcoming[0]


def prefetch(batches, device):
    """`record_stream` names the copying stream, which the allocator knows, and not the one that uses the batch."""
    copying, main, upcoming = torch.sim.Stream(device), torch.sim.current_stream(device), None
    for batch in [*batches, None]:
        ready = upcoming
        if batch is not None:
            with torch.sim.stream(copying):
                there = batch.to(device, non_blocking=True)
                there.record_stream(copying)
                upcoming = there, copying.record_event()
        if ready is not None:
            main.wait_event(ready[1])
            yield ready[0]


def prefetch(batches, device):
    """`record_stream` where the memory is the caller's stream's own: that tells the allocator nothing."""
    copying, main, upcoming = torch.sim.Stream(device), torch.sim.current_stream(device), None
    for batch in [*batches, None]:
        ready = upcoming
        if batch is not None:
            there = torch.empty_like(batch, device=device)
            there.record_stream(main)
            with torch.sim.stream(copying):
                upcoming = there.copy_(batch, non_blocking=True), copying.record_event()
        if ready is not None:
            main.wait_event(ready[1])
            yield ready[0]
