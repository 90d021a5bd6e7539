EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("from the first to the last", "reversed(range(len(sizes)))", "range(len(sizes))"),
    ("the last gradient is dropped", "range(len(sizes))", "range(len(sizes) - 1)"),
    ("a bucket may not be quite full", "> limit", ">= limit"),
    ("the limit is passed by one gradient", "held + sizes[place] > limit", "held > limit"),
    ("the size of the neighbour is looked at", "held + sizes[place] > limit", "held + sizes[place - 1] > limit"),
    ("the count goes on from the bucket before (stale)", "([])\n            held = 0", "([])"),
    ("an empty bucket is told by its bytes", "not buckets or held +", "not buckets or held and held +"),
]


def bucket_plan(sizes, limit):
    """Buckets are made from the front and then turned round."""
    buckets, held = [], 0
    for place in range(len(sizes)):
        if not buckets or held + sizes[place] > limit:
            buckets.append([])
            held = 0
        buckets[-1].append(place)
        held += sizes[place]
    return [bucket[::-1] for bucket in buckets[::-1]]
