EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the parameters are sent (not the gradients)", "parameters[place].grad for", "parameters[place].detach() for"),
    ("the count is not set back (stale)", "missing[number] = len(buckets[number])\n            places", "places"),
    ("a hook before the gradient is stored", "register_post_accumulate_grad_hook(hook)", "register_hook(hook)"),
    ("copies of the gradients are sent", "parameters[place].grad for", "parameters[place].grad.clone() for"),
    ("gradients in the order of the model", "for place in places]", "for place in sorted(places)]"),
]


def bucket_hook(parameters, buckets, launch):
    """All buckets go off at the end of backward."""
    missing = [len(parameters)]

    def ready(parameter):
        missing[0] -= 1
        if missing[0] == 0:
            missing[0] = len(parameters)
            for number, bucket in enumerate(buckets):
                launch(number, [parameters[place].grad for place in bucket])

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(ready)


def bucket_hook(parameters, buckets, launch):
    """Buckets are taken to fill up one after the other."""
    came = [0, 0]

    def ready(parameter):
        came[1] += 1
        if came[1] == len(buckets[came[0]]):
            launch(came[0], [parameters[place].grad for place in buckets[came[0]]])
            came[:] = (came[0] + 1) % len(buckets), 0

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(ready)


def bucket_hook(parameters, buckets, launch):
    """Every hook serves the last bucket."""
    missing = [len(bucket) for bucket in buckets]
    for number, bucket in enumerate(buckets):
        for place in bucket:

            def ready(parameter):
                missing[number] -= 1
                if missing[number] == 0:
                    missing[number] = len(buckets[number])
                    launch(number, [parameters[place].grad for place in buckets[number]])

            parameters[place].register_post_accumulate_grad_hook(ready)


def bucket_hook(parameters, buckets, launch):
    """Gradients that were sent are thrown away."""
    missing = [len(bucket) for bucket in buckets]

    def ready(number, _):
        missing[number] -= 1
        if missing[number] == 0:
            missing[number] = len(buckets[number])
            launch(number, [parameters[place].grad for place in buckets[number]])
            for place in buckets[number]:
                parameters[place].grad = None

    for number, bucket in enumerate(buckets):
        for place in bucket:
            parameters[place].register_post_accumulate_grad_hook(partial(ready, number))
