"""The checks of answers that are numbers: any make and any way are right, and of wrong ones it is said why."""

import math
from collections import deque
from decimal import Decimal
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies

from d2lmini import checks
from d2lmini.checks import pace
from d2lmini.measuring import line_fit, loading


def attainable(m, k, n, itemsize, peak, rate):
    return min(peak, 2 * m * k * n / (itemsize * (m * k + k * n + m * n)) * rate)


def images(capacity, parameters, per_image, optimizer):
    return max(0, (capacity - 4 * {"sgd": 2, "momentum": 3, "adam": 4}[optimizer] * parameters) // per_image)


def level(parameters, replicas, memory):
    kept = parameters * np.array([16, 4 + 12 / replicas, 2 + 14 / replicas, 16 / replicas])
    if not (kept <= memory).any():
        raise ValueError("too large")
    return int(np.argmax(kept <= memory))


def exact_batch(flops_per_s, bytes_per_s, gpus, gradient_bytes):
    return Fraction(gradient_bytes) * Fraction(flops_per_s) / Fraction(bytes_per_s) * (gpus - 1) / (2 * gpus)


RIGHT = {
    "separable-macs": lambda a, b, k, h, w: h * w * (a * k**2 + a * b),
    "largest-batch": images,
    "checkpointed-peak": lambda saved, k: max(
        sum(saved[: s + 1 : k]) + sum(saved[s + 1 : s + k]) for s in range(0, len(saved), k)
    ),
    "lines-in-flight": lambda bytes_per_s, latency_s, line: math.ceil(bytes_per_s * latency_s / line),
    "attainable-product": attainable,
    "most-ranks": lambda dense, message: max(1, -(-2 * dense // message) - 1),
    "tile-reads": lambda m, n, k, i, j: m * k * math.ceil(n / j) + k * n * math.ceil(m / i),
    "exposed-seconds": lambda ready, takes: max(
        (sum(takes[i:]) - (ready[-1] - ready[i]) for i in range(len(ready))), default=0.0
    ),
    "hiding-batch": lambda *given: math.ceil(exact_batch(*given)),
    "lowest-level": level,
    "zero-bytes": lambda n, p, z, b: sum([2 * n - 2 * n / p] * [2, 2, b + 1, 3 * b][z]),
}

each_exercise = pytest.mark.parametrize("name", RIGHT)


@each_exercise
@pytest.mark.parametrize("turned", [np.array, lambda x: np.array(x)[()], lambda x: torch.tensor(np.array(x))])
def test_a_number_in_any_form(name, turned):
    assert checks.CHECKS[name](lambda *given: turned(RIGHT[name](*given)))


@each_exercise
@pytest.mark.parametrize("turned", [str, lambda x: x > 0, lambda x: torch.tensor([x])])
def test_what_is_no_number_is_told(name, turned):
    verdict = checks.CHECKS[name](lambda *given: turned(RIGHT[name](*given)))
    assert not verdict
    assert "could not be read" not in verdict.sentence


@each_exercise
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_finite_number_is_refused(name, odd):
    assert not checks.CHECKS[name](lambda *given: odd)


def replicas_by_divisors(batch, size, stages, idle):
    """The bubble, solved for the fewest micro-batches; idle may be 0 where there is one stage."""
    least = (stages - 1) * (1 - idle) / idle if idle else 1
    found = [r for r in range(1, batch + 1) if batch % (r * size) == 0 and batch // (r * size) >= least]
    return torch.tensor(max(found, default=0))


def floored(capacity, parameters, per_image, optimizer):
    numbers = 1 + ["", "sgd", "momentum", "adam"].index(optimizer)
    return np.floor(np.maximum(capacity - 4 * numbers * parameters, 0) / per_image)


def doubled(gradients, largest):
    most = max(float(g.abs().max()) for g in gradients)
    mantissa, exponent = math.frexp(most)
    ends = [2.0**e for e in range(-exponent - 40, -exponent + 80)]
    return np.float64(max(s for s in ends if s * most <= largest)) if mantissa else 1


def codes(x):
    low, high = min(0, x.min()), max(0, x.max())
    scale = float(high - low) / 255 or 0.5
    zero = round(float(-low) / scale)
    return np.clip(np.rint(np.asarray(x) / scale + zero), 0, 255).astype(np.uint8), scale, zero


def codes_with_an_exact_end(x):
    """Make the scale a little larger, so that neither end is cut off when the zero is rounded."""
    low, high = min(0.0, x.min().item()), max(0.0, x.max().item())
    zero = round(-low / (high - low) * 255) if high > low else 0
    scale = max(-low / zero if zero else 0, high / (255 - zero) if zero < 255 else 0) or 1.0
    return torch.round(x / scale + zero), scale, zero


def sent(gradient, unsent, k):
    due = gradient + unsent
    places = due.abs().argsort()[-k:]
    return due[places], places, due.index_fill(0, places, 0)


def cycle_of_visits(n, rng):
    visit = list(range(n))
    rng.shuffle(visit)
    places = [0] * n
    for here, there in zip(visit, visit[1:] + visit[:1]):
        places[here] = there
    return places


def searched(batches, seconds, share):
    line = line_fit.fit(batches, seconds)
    return next(b for b in range(1, 10**6) if b / line.predict(b) >= share * line.beta * (1 - 1e-12))


def middle_slope(batches, seconds, share):
    points = list(zip(batches, seconds))
    t1 = np.median([(u - t) / (c - b) for b, t in points for c, u in points if c > b])
    t0 = np.median([t - t1 * b for b, t in points])
    return torch.tensor(math.ceil(share / (1 - share) * t0 / t1))


def counted(load, step, cores):
    workers = next(w for w in range(1, cores + 1) if w * step >= load or w == cores)
    return np.int64(workers), torch.tensor(loading.utilisation(load, step, workers))


def shares_solved(threads, seconds):
    rows = torch.tensor([[1.0, 1 / p] for p in threads], dtype=torch.float64)
    stays, shared = torch.linalg.lstsq(rows, torch.tensor(seconds, dtype=torch.float64)[:, None]).solution[:, 0]
    return stays / (stays + shared)


def shares_of_products(threads, seconds):
    stays, shared = np.polyfit(threads, np.multiply(threads, seconds), 1)  # p × T(p) is a line in p
    return stays / (stays + shared)


def shares_in_single_precision(threads, seconds):
    rows = torch.tensor([[1.0, 1 / p] for p in threads])
    stays, shared = torch.linalg.lstsq(rows, torch.tensor(seconds)[:, None]).solution[:, 0]
    return stays / (stays + shared)


def whole_bytes(parameters, outputs, gpus):
    return np.array([(gpus - 1) * (outputs // gpus + parameters), 2 * parameters * (gpus - 1) // gpus])


def straight(ranks, sizes, seconds):
    x, y = torch.tensor(sizes).double() / ranks, torch.tensor(seconds).double() / (2 * ranks - 2)
    per_byte, alpha = np.polyfit(x, y, 1, w=1 / y)
    return torch.tensor([alpha, 1 / per_byte], dtype=torch.float64)


def least_distances(ranks, sizes, seconds):
    """A fit in which distances count, not their squares: a time that is far off moves it less."""
    times, steps = np.array(seconds), 2 * ranks - 2
    terms = np.stack([np.full(len(times), steps), steps / ranks * np.array(sizes, float)], 1) / times[:, None]
    weights = np.ones(len(times))
    for _ in range(50):
        found, *_ = np.linalg.lstsq(terms * weights[:, None], weights, rcond=None)
        weights = 1 / np.sqrt(np.maximum(np.abs(terms @ found - 1), 1e-9))
    return found[0], 1 / found[1]


def told(low, high, least):
    return "yes" if low > least else "no" if high < least else "open"


def by_mean_and_spread(simulated, past, least):
    """Student's t for the error of one more pair, of logarithms."""
    errors = [math.log(s / p) for p, s in past]
    t = {2: 12.7, 3: 4.3, 4: 3.2, 5: 2.8, 6: 2.6}[len(errors)]
    half = t * np.std(errors, ddof=1) * (1 + 1 / len(errors)) ** 0.5
    ends = [math.log(end) - np.mean(errors) for end in (min(simulated), max(simulated))]
    return told(ends[0] - half, ends[1] + half, math.log(least))


def by_differences(simulated, past, least):
    """The range is widened on a linear axis."""
    factors = [s / p for p, s in past]
    low, high = min(simulated) / max(factors), max(simulated) / min(factors)
    return told(low - (high - low) / 2, high + (high - low) / 2, least)


def between(f, low, high, target):
    """Return where a falling function has a value, between two ends, by halving on a logarithmic axis."""
    for _ in range(10):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if f(middle) > target else (low, middle)
    return math.sqrt(low * high)


def searched_constants(measure, simulate):
    """The rate first, from a step that no host of a plausible cost decides; then the host's calls a second."""
    large, small = measure(2**20), measure(2)
    rate = between(lambda r: simulate(2**20, 2e-5, r), 5e11, 3e12, large)
    return np.array([1 / between(lambda calls: simulate(2, 1 / calls, rate), 5e3, 2e5, small), rate])


def in_two_rounds(measure, simulate):
    """All three measurements, two of them of the host; each constant twice."""
    host, rate, small, large = 1e-5, 1e12, (measure(1) + measure(5)) / 2, measure(2**19)
    for _ in range(2):
        host *= small / simulate(3, host, rate)
        rate *= simulate(2**19, host, rate) / large
    return torch.tensor([host, rate])


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.calibrate, searched_constants),
        (checks.calibrate, in_two_rounds),
        (checks.claim_holds, by_mean_and_spread),
        (checks.claim_holds, by_differences),
        (checks.ring_constants, straight),
        (checks.ring_constants, least_distances),
        (checks.rate_ends, lambda b, n, gpu, low, high: np.array([min(b / gpu, b / n / cost) for cost in (high, low)])),
        (checks.separable_macs, lambda a, b, k, h, w: h * w * k**2 * a * b * (1 / b + 1 / k**2)),  # its division rounds
        (checks.largest_batch, floored),
        (checks.loss_scale, doubled),
        (checks.first_gpu_bytes, whole_bytes),
        (checks.zero_point, codes),
        (checks.zero_point, codes_with_an_exact_end),
        (checks.zero_point, lambda x: [codes(x)[0].tolist(), np.float32(codes(x)[1]), codes(x)[2]]),
        (checks.send_largest, sent),
        (checks.send_largest, lambda *g: [part.tolist() for part in sent(*g)]),
        (checks.send_largest, lambda *g: [list(part) for part in sent(*g)]),  # of tensors with one number
        (checks.send_largest, lambda *g: (yield from sent(*g))),
        (checks.zero_point, lambda x: (yield from codes(x))),
        (checks.random_cycle, lambda *given: dict(enumerate(cycle_of_visits(*given))).values()),
        (checks.random_cycle, lambda *given: torch.tensor(cycle_of_visits(*given))),
        (checks.batch_for, searched),
        (checks.batch_for, lambda b, t, s: float(searched(b, t, s))),
        (checks.batch_for, middle_slope),
        (checks.worker_plan, counted),
        (checks.worker_plan, lambda *given: np.array(counted(*given))),
        (checks.serial_share, shares_solved),
        (checks.serial_share, shares_of_products),
        (checks.serial_share, shares_in_single_precision),
        (checks.zero_bytes, lambda *given: torch.tensor(RIGHT["zero-bytes"](*given), dtype=torch.float32)),
        (checks.scaled_rate, lambda i, n, warm, r, of: torch.tensor(r) * (1 + (n / of - 1) * (i >= warm or i / warm))),
        (checks.bounded_queue, lambda *given: torch.tensor(pace.finish_times(*given))),
        (checks.fewest_servers, lambda workers: Decimal(workers + 3) // 2),
        (checks.most_replicas, replicas_by_divisors),
        (checks.most_replicas, lambda *given: np.float32(replicas_by_divisors(*given))),
        (checks.allreduce_bytes, lambda nbytes, devices: np.array([2, 1]) * (devices - 1) * nbytes),
        (checks.allreduce_bytes, lambda nbytes, devices: (times * (devices - 1) * nbytes for times in (2, 1))),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)


@pytest.mark.parametrize(
    ("check", "answer", "message"),
    [
        (checks.hiding_batch, lambda *given: int(exact_batch(*given)), "round up"),
        (checks.hiding_batch, lambda f, w, p, g: math.ceil(g * f / (2 * w)), "expected 3000, got 4000 (int)"),
        (checks.hiding_batch, lambda *given: math.ceil(2 * exact_batch(*given)), "4 operations for each weight"),
        (checks.batch_for, lambda b, t, s: 16, "t0 = 100 µs, t1 = 7 µs, share 0.5: expected a batch of 15, got 16"),
        (checks.batch_for, lambda b, t, s: 14.6, "expected a batch of 15, a whole number, got 14.6"),
        (
            checks.zero_bytes,
            lambda n, p, z, b: 2 * n * (p - 1) / p * (3 if z == 3 else 2),
            "stage 2, 3 micro-batches: expected 7,200 bytes, got 3,600: 4 half rings of 1,800, yours are 2",
        ),
        (
            checks.lowest_level,
            lambda n, r, m: 0 if 16 * n <= m else 3,
            "expected level 1, got 3 (level 1 keeps 560 bytes: 160, 160, 240",
        ),
        (checks.lowest_level, lambda *given: True, "got True (bool)"),
        (checks.worker_plan, lambda *given: 4, "expected a pair of numbers (workers, utilisation), got 4"),
        (checks.worker_plan, lambda *given: (4, 0.5), "4 workers keep the device busy for 1 of the time, you say 0.5"),
        (checks.worker_plan, lambda *given: (5, 1.0), "load 624 µs, step 171 µs, 16 cores: expected 4 workers, got 5"),
        (checks.zero_point, lambda x: codes(x) if x.any() else (x / 0, 1, 0), "5 integers and a zero from 0 to 255"),
        (
            checks.loss_scale,
            lambda gradients, largest: doubled([g.float() for g in gradients], largest),
            "largest 448, gradients [14.000000000000002] and zeros: expected 16, got 32",
        ),
        (checks.loss_scale, lambda gradients, largest: "1", "expected the number 32,768, got '1' (str)"),
        (checks.zero_bytes, lambda *given: Decimal(7200), "3,600 bytes, got 7,200: 2 half rings of 1,800, yours are 4"),
        (
            checks.most_replicas,
            lambda batch, size, *_: batch // size,
            "each then has 1 micro-batch, and is idle for 0.5",
        ),
        (
            checks.most_replicas,
            lambda batch, size, stages, idle: min(batch // size, 8),
            "sequences, 2 a micro-batch, 4 stages, a bubble of at most 0.101: expected 16, got 8",
        ),
        (checks.third_time, lambda *given: Decimal("2.5"), "expected 3 s, got 2.5 (Decimal)"),
        (checks.rate_ends, lambda b, *_: b, "expected 2 values (least, most), got 1 (int)"),
        (checks.ring_constants, lambda n, s, t: np.polyfit(s, t, 1), "expected α = 5e-06, got 5e-11"),
        (checks.serial_share, lambda p, t: "0", "expected the number 0.0, got '0' (str)"),
        (
            checks.most_ranks,
            lambda dense, size: max(1, math.ceil(2 * dense / size) - 1),
            "666,666,666,666,666,667, got",
        ),
        (checks.bounded_queue, lambda *given: [], "expected a list of 3 times, got []"),
        (checks.bounded_queue, lambda *given: [3, 5, 8], "step 2 ends at 7, you say 8"),
    ],
)
def test_what_is_wrong_is_told(check, answer, message):
    assert message in check(answer).sentence


@pytest.mark.parametrize(
    ("check", "answer", "message"),
    [
        (
            checks.bounded_queue,
            lambda *given: [end + 1e-7 for end in pace.finish_times(*given)],
            "at 3, you say 3.0000001",
        ),
        (checks.worker_plan, lambda *given: (4 + 1e-7, 1), "expected 4 workers, got 4.0000001"),
        (checks.worker_plan, lambda *given: (4, 1 - 3e-6), "busy for 1 of the time, you say 0.999997"),
        (
            checks.first_gpu_bytes,
            lambda *given: whole_bytes(*given) + np.array([1e-4, 0]),
            "expected 16,512 for DataParallel, got 16,512.0001",
        ),
        (checks.allreduce_bytes, lambda n, p: [2 * n * (p - 1) + 1e-7, n * (p - 1)], "got [200.0000001, 100] (list)"),
        (checks.allreduce_bytes, lambda n, p: torch.tensor([[200, 100]]), "got [[200, 100]] (Tensor of shape [1, 2]"),
        (checks.hiding_batch, lambda *given: 3000 + 1e-6, "expected 3000, got 3000.000001 (float)"),
        (checks.fit_line, lambda sizes, seconds: ("1e-5", "1e10"), "(alpha, beta), got ['1e-5', '1e10'] (tuple)"),
        (
            checks.node_bytes,
            lambda n, nodes, each: [2 * n * (1 - 1 / (nodes * each)) + 1e-4, 0],
            "with the flat ring 7200 bytes leave a node, got 7200.0001",
        ),
        (checks.most_replicas, lambda *given: 8 + 1e-7, "expected 8, got 8.0000001 (float)"),
        (checks.fewest_servers, lambda workers: 2 + 1e-7, "expected 2, got 2.0000001 (float)"),
        (checks.third_time, lambda one, other, workers: 3.00001, "expected 3 s, got 3.00001 (float)"),
        (checks.scaled_rate, lambda *given: 0.1000002, "expected 0.1, got 0.1000002 (float)"),
        (checks.exposed_seconds, lambda ready, takes: 0.75 + 1e-8, "expected 0.75, got 0.75000001 (float)"),
        (checks.tile_reads, lambda *given: 256 + 1e-6, "256; got 256.000001 (float)"),
        (
            checks.zero_bytes,
            lambda *given: 3600.01,
            "3,600 bytes, got 3,600.01: 2 half rings of 1,800, yours are 2.00001",
        ),
        (checks.pipeline_seconds, lambda *given: 9 + 1e-7, "expected 9 s, got 9.0000001 s"),
        (checks.ring_constants, lambda n, sizes, t: (5.001e-6, 20e9), "expected α = 5e-06, got 5.001e-06"),
        (checks.loss_scale, lambda gradients, largest: 32768 + 1e-9, "expected 32,768, got 32,768.000000001"),
        (checks.ring_seconds, lambda held: 14 + 1e-6, "expected 14 s, got 14.000001 s"),
        (checks.most_ranks, lambda dense, message: 49 + 1e-7, "expected 49, got 49.0000001"),
        (checks.lowest_level, lambda *given: 1e-7, "expected level 0, got 1e-07 (float)"),
        (checks.attainable_product, lambda *given: 150.001e9, "got 150.001 GFLOP/s"),
        (checks.largest_batch, lambda *given: 120 + 1e-7, "images, got 120.0000001"),
        (checks.bucket_plan, lambda sizes, limit: [[2 + 1e-7, 1], [0]], "got [[2.0000001, 1], [0]]"),
        (checks.serial_share, lambda threads, seconds: 2e-5, "expected 0, got 2e-05"),
    ],
)
def test_a_near_miss_does_not_read_as_if_it_were_right(check, answer, message):
    assert message in check(answer).sentence


def test_what_a_reader_prints_comes_a_few_hundred_times_at_most(capsys):
    assert checks.random_cycle(lambda n, rng: print(n) or cycle_of_visits(n, rng))
    assert 5 < len(capsys.readouterr().out.splitlines()) < 1000


@pytest.mark.parametrize("answer", [None, "7", (1, 2), [[1.0]], {}, 7, ["a"] * 5, [0.5] * 5, []])
@pytest.mark.parametrize("name", ["loss-scale", "send-largest", "zero-point", "random-cycle"])
def test_what_is_no_answer_is_told(name, answer):
    verdict = checks.CHECKS[name](lambda *given: answer)
    assert not verdict
    assert "could not be read" not in verdict.sentence


def ticks(loads, steps, capacity):
    """Run a loader and a device against a real queue, one unit of time after the other; return when each step ends."""
    queue, ends = deque(), []
    to_load, to_train = deque(enumerate(loads)), None
    making, held, left = None, None, 0
    now = 0
    while len(ends) < len(loads):
        if to_train is not None and left == 0:
            ends.append(now)
            to_train = None
        moved = True
        while moved:  # what can happen in no time happens before the next tick
            moved = False
            if making is None and held is None and to_load:
                making = list(to_load.popleft())
                moved = True
            if making is not None and making[1] == 0:
                held, making, moved = making[0], None, True
            if held is not None and len(queue) < capacity:
                queue.append(held)
                held, moved = None, True
            if to_train is None and queue:
                to_train = queue.popleft()
                left, moved = steps[to_train], True
        now += 1
        if making is not None:
            making[1] -= 1
        if to_train is not None:
            left -= 1
    return ends


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.integers(1, 9), strategies.integers(1, 9)), max_size=12),
    strategies.integers(1, 4),
)
@hypothesis.settings(max_examples=200, deadline=None)
def test_finish_times_are_those_of_a_real_queue(pairs, capacity):
    loads, steps = [a for a, _ in pairs], [b for _, b in pairs]
    assert pace.finish_times(loads, steps, capacity) == ticks(loads, steps, capacity)
