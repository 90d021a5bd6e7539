import gzip
import hashlib

import numpy as np
import pytest
import torch
from served import FileServer, idx

import simgpu
from d2lmini.data import datasets
from d2lmini.data.datasets import Batches, load_data_digits, load_data_fashion_mnist, load_data_mnist


def examples(n, height=3, width=2):
    """Return n images that all differ, and labels which say which image each belongs to."""
    images = torch.arange(n * height * width).remainder(251).to(torch.uint8).reshape(n, 1, height, width)
    return images, torch.arange(n)


def epoch_of(batches):
    return torch.cat([y for _, y in batches]).tolist()


# --- batches


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (1, 8), (7, 1), (7, 3), (8, 3), (9, 3), (9, 9), (9, 10)])
def test_an_epoch_has_every_example_once(n, batch_size, shuffle):
    images, labels = examples(n)
    batches = Batches(images, labels, batch_size, shuffle=shuffle)
    sizes = [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
    for _ in range(2):
        got = list(batches)
        assert [len(y) for _, y in got] == [len(X) for X, _ in got] == sizes
        assert len(batches) == len(sizes)
        seen = [i for _, y in got for i in y.tolist()]
        assert len(set(seen)) == sum(sizes)
        if not shuffle:
            assert seen == list(range(sum(sizes)))
    assert batches.num_examples == n


@pytest.mark.parametrize("shuffle", [False, True])
def test_values_are_the_bytes_over_255_of_strided_images_too_and_labels_any_integers(shuffle):
    images = torch.arange(512).remainder(256).to(torch.uint8).reshape(64, 1, 4, 2).transpose(2, 3)
    reference = images.numpy().astype(np.float32) / np.float32(255)
    for X, y in Batches(images, torch.arange(64, dtype=torch.uint8), 10, shuffle=shuffle):
        assert X.dtype == torch.float32
        assert y.dtype == torch.int64
        assert np.array_equal(X.numpy(), reference[y.numpy()])


def test_an_order_depends_on_seed_and_epoch_alone():
    orders = {}
    for seed in (0, 1, 2):
        batches = Batches(*examples(50), 7, shuffle=True, seed=seed)
        for epoch in range(3):
            assert batches.epoch == epoch
            orders[seed, epoch] = epoch_of(batches)
    assert len({tuple(order) for order in orders.values()}) == 9  # in particular, not a function of seed + epoch
    other_size = Batches(*examples(50), 50, shuffle=True, seed=1)
    other_size.epoch = 2
    torch.manual_seed(99)
    assert epoch_of(other_size) == orders[1, 2]


def test_every_process_has_the_same_order_whatever_its_default_device():
    batches = Batches(*examples(9), 7, shuffle=True)
    with torch.device("meta"):
        assert [epoch_of(batches) for _ in range(2)] == [[7, 3, 6, 2, 8, 0, 4, 1, 5], [2, 7, 4, 1, 3, 0, 5, 6, 8]]


def test_epochs_are_counted_where_they_begin():
    batches = Batches(*examples(9), 2, shuffle=True)
    first = iter(batches)
    second = iter(batches)
    assert batches.epoch == 2
    late, early = torch.cat([y for _, y in second]), torch.cat([y for _, y in first])
    batches.epoch = 0
    assert epoch_of(batches) == early.tolist()
    assert epoch_of(batches) == late.tolist()


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_global_generator_and_the_data_are_left_alone(shuffle):
    images, labels = examples(9)
    before, kept = torch.get_rng_state(), images.clone()
    for X, y in Batches(images, labels, 4, shuffle=shuffle):
        X.zero_()
        y.zero_()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images, kept)
    assert labels.tolist() == list(range(9))


@pytest.mark.parametrize("shuffle", [False, True])
def test_to_moves_a_copy_that_makes_its_batches_there_from_the_same_epoch(shuffle):
    batches = Batches(*examples(9), 4, shuffle=shuffle, seed=3)
    epoch_of(batches)
    moved, same = batches.to("meta"), batches.to("cpu")
    assert (batches.images.device.type, moved.epoch, len(moved), moved.num_examples) == ("cpu", 1, 3, 9)
    shapes = [(X.device.type, X.dtype, tuple(X.shape), y.device.type, tuple(y.shape)) for X, y in moved]
    assert shapes == [("meta", torch.float32, (b, 1, 3, 2), "meta", (b,)) for b in (4, 4, 1)]
    assert (moved.images.dtype, moved.epoch, batches.epoch) == (torch.uint8, 2, 1)
    assert epoch_of(same) == epoch_of(batches)


def test_an_epoch_on_a_gpu_copies_one_order_and_never_waits():
    simgpu.enable(1)
    there = Batches(*examples(640), 8, shuffle=True).to("sim:0")
    list(there)
    with simgpu.trace() as trace:
        for _ in there:
            pass
    (copy,) = (span for span in trace.spans if span.kind == "copy")
    (wait,) = (span for span in trace.spans if span.kind == "wait")
    assert copy.nbytes == 640 * 8  # the order, int64, before the first batch
    assert wait.end == copy.end
    assert sum(span.kind == "operation" for span in trace.spans) > 3 * len(there)


U8 = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8"])
@pytest.mark.parametrize("load", [load_data_digits, load_data_mnist])
def test_a_bad_size_is_told_before_anything_is_read(value, load):
    with pytest.raises(ValueError, match="batch_size"):
        load(value)
    with pytest.raises(ValueError, match="resize"):
        load(8, resize=value)


@pytest.mark.parametrize(
    ("images", "labels", "keyword"),
    [
        (U8.float(), torch.arange(4), "float32"),
        (U8[:, 0], torch.arange(4), "images"),
        (U8.numpy(), torch.arange(4), "ndarray"),
        (U8, [0, 1, 2, 3], "list"),
        (U8, torch.arange(3), "3 labels"),
        (U8, torch.arange(4).reshape(4, 1), "labels"),
        (U8, torch.arange(4.0), "float32"),
        (U8[:0], torch.arange(0), "got 0"),
    ],
)
def test_bad_data_is_one_line(images, labels, keyword):
    with pytest.raises(ValueError, match=keyword) as error:
        Batches(images, labels, 2)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="batch_size"):
        Batches(U8, torch.arange(4), 0)


# --- the bundled digits


def weights(n, size):
    """Return the shares [size, n] of n pixels in each of `size` that are sampled at their centres: the definition."""
    shares = np.zeros((size, n))
    for i in range(size):
        u = min(max((i + 0.5) * n / size - 0.5, 0), n - 1)
        low = int(u)
        shares[i, low] += 1 - (u - low)
        shares[i, min(low + 1, n - 1)] += u - low
    return shares


def bilinear(image, size):
    return weights(image.shape[0], size) @ image @ weights(image.shape[1], size).T


@pytest.mark.parametrize("size", [28, 8, 13])
def test_digits_are_the_bundled_ones_enlarged(size):
    from sklearn.datasets import load_digits

    digits = load_digits()
    train_iter, test_iter = load_data_digits(100, resize=None if size == 8 else size, seed=5)
    assert (train_iter.num_examples, test_iter.num_examples) == (1500, 297)
    assert (train_iter.shuffle, test_iter.shuffle, train_iter.seed, len(train_iter)) == (True, False, 5, 15)
    assert train_iter.labels.tolist() + test_iter.labels.tolist() == digits.target.tolist()
    images = torch.cat([train_iter.images, test_iter.images])
    assert images.shape == (1797, 1, size, size)
    for i in (0, 255, 256, 1499, 1500, 1796):  # the ends of what is resized together and of both parts
        expected = np.floor(bilinear(digits.images[i], size) * 255 / 16 + 0.5 + 1e-9)
        assert np.array_equal(images[i, 0].numpy(), expected)


# --- MNIST and Fashion-MNIST, here with a few generated images


def generate(seed):
    g = torch.Generator().manual_seed(seed)
    parts = {"train": 13, "t10k": 6}
    images = {p: torch.randint(256, (n, 28, 28), generator=g, dtype=torch.uint8) for p, n in parts.items()}
    labels = {p: torch.randint(10, (n,), generator=g, dtype=torch.uint8) for p, n in parts.items()}
    files = {f"{p}-images-idx3-ubyte.gz": gzip.compress(idx(images[p])) for p in parts}
    files |= {f"{p}-labels-idx1-ubyte.gz": gzip.compress(idx(labels[p])) for p in parts}
    return images, labels, files


IMAGES, LABELS, FILES = generate(0)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Serve the generated files in place of the published ones, to an empty cache, with no folder of the reader's."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("D2LMINI_DATA", raising=False)
    with FileServer(FILES) as server:
        for table in ("MNIST", "FASHION_MNIST"):
            known = getattr(datasets, table)
            facts = {name: (hashlib.sha256(FILES[name]).hexdigest(), len(FILES[name])) for name in known.files}
            monkeypatch.setattr(datasets, table, known._replace(mirrors=(server.mirror("good"),), files=facts))
        yield server


def put(folder, files=FILES, unpack=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name.removesuffix(".gz" if unpack else "")
        path.write_bytes(gzip.decompress(content) if unpack else content)
    return folder


def assert_loaded(iterators, images=IMAGES, labels=LABELS):
    for part, batches in zip(("train", "t10k"), iterators, strict=True):
        assert torch.equal(batches.images, images[part].unsqueeze(1))
        assert torch.equal(batches.labels, labels[part].long())
    assert [batches.shuffle for batches in iterators] == [True, False]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("load", "name"), [(load_data_mnist, "mnist"), (load_data_fashion_mnist, "fashion_mnist")])
def test_files_are_downloaded_once(server, tmp_path, monkeypatch, load, name):
    assert_loaded(load(4))
    assert sorted(name for _, name in server.requests) == sorted(FILES)
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache" / "d2lmini" / name).iterdir()}
    assert {p.name for p in kept} >= set(FILES)
    assert_loaded(load(4))
    assert len(server.requests) == 4
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # then it is in the home folder
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert_loaded(load(4))
    assert len(list((tmp_path / "home/.cache/d2lmini" / name).glob("*.gz"))) == 4


@pytest.mark.parametrize("unpack", [False, True])
def test_the_environment_names_the_files_or_a_folder_above_them_which_are_only_read(
    server, tmp_path, monkeypatch, unpack
):
    other_images, other_labels, other_files = generate(1)
    put(tmp_path / "both/mnist", unpack=unpack)
    put(tmp_path / "both/fashion_mnist", other_files, unpack)
    put(tmp_path / "both", other_files, unpack)
    put(tmp_path / "direct", unpack=unpack)
    before = contents(tmp_path)
    monkeypatch.setenv("D2LMINI_DATA", str(tmp_path / "both"))
    assert_loaded(load_data_mnist(4))
    assert_loaded(load_data_fashion_mnist(4), other_images, other_labels)
    monkeypatch.setenv("D2LMINI_DATA", str(tmp_path / "direct"))
    assert_loaded(load_data_mnist(4))
    assert contents(tmp_path) == before
    assert server.requests == []


@pytest.mark.parametrize("missing", sorted(FILES)[::3])
def test_a_missing_file_is_one_line_and_no_request(server, tmp_path, monkeypatch, missing):
    folder = put(tmp_path / "mine", {name: content for name, content in FILES.items() if name != missing})
    for root in (folder, tmp_path / "nowhere"):
        monkeypatch.setenv("D2LMINI_DATA", str(root))
        with pytest.raises(FileNotFoundError, match=missing) as error:
            load_data_mnist(4)
        assert str(root) in str(error.value)
        assert "\n" not in str(error.value)
    assert server.requests == []


def test_resize_and_seed_are_passed_on(server):
    train_iter, test_iter = load_data_mnist(4, 31, seed=3)
    assert (train_iter.seed, train_iter.batch_size, test_iter.batch_size) == (3, 4, 4)
    for part, batches in (("train", train_iter), ("t10k", test_iter)):
        assert batches.images.dtype == torch.uint8
        for image, resized in zip(IMAGES[part], batches.images[:, 0], strict=True):
            assert np.array_equal(resized.numpy(), np.floor(bilinear(image.double().numpy(), 31) + 0.5 + 1e-9))


@pytest.mark.parametrize("shape", [(32, 32), (56, 14), (0, 28)])
def test_images_of_another_size_are_told_with_their_file(server, tmp_path, monkeypatch, shape):
    image = gzip.compress(idx(torch.zeros(6, *shape, dtype=torch.uint8)))
    folder = put(tmp_path / "a\nb", {**FILES, "t10k-images-idx3-ubyte.gz": image})
    monkeypatch.setenv("D2LMINI_DATA", str(folder))
    with pytest.raises(ValueError, match=f"t10k-images.*{shape[0]}.*{shape[1]}") as error:
        load_data_mnist(4)
    assert "\n" not in str(error.value)
