EDITS = [
    ("all communication, not only what is exposed", '"exposed_communication_seconds"', '"communication_seconds"'),
    ("the shortest", "max(", "min("),
    ("the host never", '        "host": gpu["idle_seconds"],\n', ""),
    ("two names changed", '"communication": gpu["exposed', '"network": gpu["exposed'),
]


def verdict(gpu):
    """Busy for half of the time or it is the host."""
    total = gpu["busy_seconds"] + gpu["exposed_communication_seconds"] + gpu["idle_seconds"]
    return "compute" if gpu["busy_seconds"] > total / 2 else "host"
