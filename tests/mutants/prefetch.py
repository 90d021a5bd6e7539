"""Wrong answers to the exercise prefetch, which its check must reject."""

COPY = "copied = batch.to(device, non_blocking=True)\n            return copied, copying.record_event()"
EARLY = "event = copying.record_event()\n            return batch.to(device, non_blocking=True), event"

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("work on a batch does not wait", "            module.current_stream(device).wait_event(ready[1])\n", ""),
    ("work on the last batch does not wait", "        module.current_stream(device).wait_event(upcoming[1])\n", ""),
    ("memory still in use is given away", "        copying.wait_stream(module.current_stream(device))\n", ""),
    ("one stream for everything", "module.Stream(device)", "module.current_stream(device)"),
    ("the host waits for each copy", "non_blocking=True", "non_blocking=False"),
    ("the memory is not pinned any more", "batch.to(device,", "batch.clone().to(device,"),
    ("the host waits for the event", "module.current_stream(device).wait_event(ready[1])", "ready[1].synchronize()"),
    ("the last batch is dropped", "        yield upcoming[0]\n", "        pass\n"),
    ("the batch of before (stale)", "yield ready[0]", "yield upcoming[0]"),
    ("the event stands before the copy", COPY, EARLY),
    ("the stream is left current", "with module.stream(copying):", "module.set_stream(copying)\n        if True:"),
    ("what comes is on the host", "return copied,", "return batch,"),
    ("the copying stream waits for itself", "copying.wait_stream(module.current_stream(device))",
     "copying.wait_stream(copying)"),
]  # fmt: skip

# what is wrong, a whole function
FUNCTIONS = [
    (
        "each batch is copied when its turn comes",
        """
def prefetch(batches, device):
    for batch in batches:
        yield batch.to(device)
""",
    ),
    (
        "the next batch is asked for after this one was handed out, behind its work",
        """
def prefetch(batches, device):
    copying = torch.sim.Stream(device)
    for batch in batches:
        copying.wait_stream(torch.sim.current_stream(device))
        with torch.sim.stream(copying):
            batch = batch.to(device, non_blocking=True)
        torch.sim.current_stream(device).wait_stream(copying)
        yield batch
""",
    ),
    (
        "all batches at once, in memory that has no owner",
        """
def prefetch(batches, device):
    copying = torch.sim.Stream(device)
    with torch.sim.stream(copying):
        there = [(batch.to(device, non_blocking=True), copying.record_event()) for batch in batches]
    for batch, arrived in there:
        torch.sim.current_stream(device).wait_event(arrived)
        yield batch
""",
    ),
    (
        "a list of the first batch",
        """
def prefetch(batches, device):
    return [batches[0].to(device)] * len(batches) if batches else []
""",
    ),
]
