"""A parameter cut into one chunk a rank, as FSDP2 does for each of its own.

torch's function makes the chunks of all ranks, and each rank uses the first one and its own: of 512 ranks that is more
work than all the rest of `fully_shard`.
"""


class Chunks:
    """The chunks of `tensor` along `dim`, made when they are asked for by their number; those past its end are empty.

    As ``torch.chunk``, the first ones have all the same length, and the last one what is left.
    """

    def __init__(self, tensor, num_chunks, dim):
        self._tensor, self._dim = tensor, dim
        self._length = -(-tensor.shape[dim] // num_chunks)

    def __getitem__(self, number):
        start = number * self._length
        length = min(self._length, self._tensor.shape[self._dim] - start)
        if start and length <= 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, length)
