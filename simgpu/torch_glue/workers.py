"""DataLoader's workers, which are forked."""

from simgpu.device.forked import check


def create_fetcher(own):
    """Return DataLoader's maker of what fetches a batch, which in a forked worker looks at each before it is sent.

    The thread that sends it could tell nobody of an error, and the program would wait for ever.
    """

    def create(*args):
        fetcher = own(*args)
        fetch = fetcher.fetch
        fetcher.fetch = lambda index: check(fetch(index))
        return fetcher

    return staticmethod(create)
