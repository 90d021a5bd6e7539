"""Wrong answers to the exercise bucket-plan, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("from the first to the last", "reversed(range(len(sizes)))", "range(len(sizes))"),
    ("the last gradient is dropped", "range(len(sizes))", "range(len(sizes) - 1)"),
    ("the first gradient is dropped", "range(len(sizes))", "range(1, len(sizes))"),
    ("a bucket may not be quite full", "> limit", ">= limit"),
    ("the limit is passed by one gradient", "held + sizes[place] > limit", "held > limit"),
    ("the size of the neighbour is looked at", "held + sizes[place] > limit", "held + sizes[place - 1] > limit"),
    ("the count goes on from the bucket before (stale)", "([])\n            held = 0", "([])"),
    ("gradients are not counted", "held += sizes[place]", "held = sizes[place]"),
    ("an empty bucket comes first", "not buckets or ", "not buckets and buckets.append([]) or "),
    ("sizes in place of places", "append(place)", "append(sizes[place])"),
    ("nothing is returned", "return buckets", "buckets"),
]


def bucket_plan(sizes, limit):
    """Every gradient has its own bucket."""
    return [[place] for place in reversed(range(len(sizes)))]


def bucket_plan(sizes, limit):
    """Large gradients are left out."""
    buckets, held = [], 0
    for place in reversed(range(len(sizes))):
        if sizes[place] > limit:
            continue
        if not buckets or held + sizes[place] > limit:
            buckets.append([])
            held = 0
        buckets[-1].append(place)
        held += sizes[place]
    return buckets


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


def bucket_plan(sizes, limit):
    """A gradient goes into any bucket that has room."""
    buckets = []
    for place in reversed(range(len(sizes))):
        for bucket in buckets:
            if sum(sizes[other] for other in bucket) + sizes[place] <= limit:
                bucket.append(place)
                break
        else:
            buckets.append([place])
    return buckets
