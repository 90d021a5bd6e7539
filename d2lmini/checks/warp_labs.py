"""The check of the lab on a warp's memory traffic: a transposition, judged by sectors fetched and passes of banks."""

from collections import Counter

import numpy as np

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, scored

EDGE = 32  # rows and columns of the matrix, and threads of the warp
WORDS = 2048  # of shared memory
SECTORS, PASSES = 256, 64  # of the book's answer: each sector once, and a pass for each load and store of shared memory


@check
def transpose(function):
    """``function(warp)``: the matrix of 32 × 32 in global memory is stored there transposed."""
    for seed in range(2):
        given = f"matrix {seed + 1}"
        matrix = np.random.default_rng(seed).permutation(EDGE * EDGE).astype(np.float32).reshape(EDGE, EDGE)
        warp = _Warp(matrix)
        attempt(lambda warp=warp: (function(warp), True), given=given)
        _must_be_transposed(given, matrix, warp.result.reshape(EDGE, EDGE))
    told = scored("transpose", warp.sectors, SECTORS, "sectors", ",.0f")
    told += f" and {warp.passes:,} {'pass' if warp.passes == 1 else 'passes'}"
    if warp.sectors > SECTORS:
        raise Wrong(f"the result is right, with {told}; bring it to {SECTORS} sectors")
    if warp.passes > PASSES:
        raise Wrong(f"the result is right, with {told}; bring it to {PASSES} passes")
    return f"the result is right, with {told}"


def _must_be_transposed(given, matrix, result):
    if np.array_equal(result, matrix.T):
        return
    i, j = np.argwhere(result != matrix.T)[0]
    got = "was never stored" if np.isnan(result[i, j]) else f"is {result[i, j]:g}"
    raise Wrong(f"{given}: row {i}, column {j} of the result should be {matrix[j, i]:g}, it {got}")


class _Warp:
    """32 threads: what they load and store is counted, and each thread has only what it has loaded itself."""

    def __init__(self, matrix):
        self._matrix = matrix.ravel()
        self._shared = np.full(WORDS, np.nan, np.float32)
        self._seen = [set() for _ in range(EDGE)]  # the numbers that each thread has loaded
        self.result = np.full(EDGE * EDGE, np.nan, np.float32)
        self.sectors = self.passes = 0

    def load(self, places):
        """Return what these 32 places of the matrix hold, one for each thread."""
        places = self._global(places)
        return self._loaded(self._matrix[places])

    def store(self, places, values):
        """Store a value of each thread at these 32 places of the result."""
        places = self._global(places)
        self.result[places] = self._own(values)

    def put(self, words, values):
        """Store a value of each thread in these 32 words of shared memory."""
        words = self._banks(words)
        self._shared[words] = self._own(values)

    def get(self, words):
        """Return what these 32 words of shared memory hold, one for each thread."""
        words = self._banks(words)
        values = self._shared[words]
        if np.isnan(values).any():
            thread = int(np.isnan(values).argmax())
            raise ValueError(f"thread {thread} gets word {words[thread]}, in which nothing was put yet: put it first")
        return self._loaded(values)

    def _global(self, places):
        places = _thirty_two(places, EDGE * EDGE, "places of a matrix")
        self.sectors += len(set((4 * places // 32).tolist()))
        return places

    def _banks(self, words):
        words = _thirty_two(words, WORDS, "words of shared memory")
        self.passes += max(Counter(word % 32 for word in set(words.tolist())).values())
        return words

    def _loaded(self, values):
        for seen, value in zip(self._seen, values.tolist(), strict=True):
            seen.add(value)
        return values

    def _own(self, values):
        values = np.asarray(values, np.float32)
        if values.shape != (EDGE,):
            raise ValueError(f"expected 32 values, one for each thread, got shape {values.shape}")
        for thread, (seen, value) in enumerate(zip(self._seen, values.tolist(), strict=True)):
            if value not in seen:
                raise ValueError(
                    f"thread {thread} stores {value:g}, which it has not loaded: threads exchange numbers through "
                    "shared memory only"
                )
        return values


def _thirty_two(places, size, what):
    places = np.asarray(places)
    if places.shape != (EDGE,) or places.dtype.kind not in "iu":
        whole = "whole numbers, the " if places.dtype.kind not in "iu" else ""
        raise ValueError(f"expected 32 {whole}{what}, one for each thread, got {brief(places.tolist())}")
    if places.min() < 0 or places.max() >= size:
        raise ValueError(f"expected {what} from 0 to {size - 1}, got {places.min()} to {places.max()}")
    return places
