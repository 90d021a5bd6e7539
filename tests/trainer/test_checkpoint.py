"""Checkpoint files: whole or refused, never half there, never in place of another kind of file."""

import os
import pickle
import re
import stat

import pytest
import torch

from d2lmini import sim
from d2lmini.trainer import checkpoint
from d2lmini.trainer.checkpoint import CheckpointError, check_target, exists, read, write

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": {"list": [1, 2.5, None, "x"], "tuple": (True, torch.zeros(0))}}


def same(a, b):
    return torch.equal(a["a"], b["a"]) and repr(a["b"]) == repr(b["b"])


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_here_and_by_torch_itself(tmp_path):
    write(tmp_path / "c.pt", STATE)
    assert same(read(str(tmp_path / "c.pt")), STATE)
    assert same(torch.load(tmp_path / "c.pt", weights_only=True), STATE)
    assert files(tmp_path) == ["c.pt"]


def test_tensors_of_a_device_are_read_where_that_device_is_not(tmp_path):
    sim.enable(2)
    write(tmp_path / "c.pt", {"a": torch.arange(3.0, device="sim:1")})
    found = torch.load(tmp_path / "c.pt", weights_only=True)["a"]  # no map_location: the file names no device
    assert found.device.type == "cpu"
    assert found.tolist() == [0, 1, 2]


def test_the_one_before_is_kept(tmp_path):
    for i in range(4):
        write(tmp_path / "c.pt", {"i": i})
        assert read(tmp_path / "c.pt") == {"i": i}
        if i:
            assert read(tmp_path / "c.pt.previous") == {"i": i - 1}
    assert files(tmp_path) == ["c.pt", "c.pt.previous"]


def test_without_hard_links_the_one_before_is_copied(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    for i in range(3):
        write(tmp_path / "c.pt", {"i": i})
    assert (read(tmp_path / "c.pt"), read(tmp_path / "c.pt.previous")) == ({"i": 2}, {"i": 1})


def test_every_changed_byte_is_seen(tmp_path):
    path = tmp_path / "c.pt"
    write(path, STATE)
    whole = path.read_bytes()
    for place in {*range(0, len(whole), 7), *range(len(whole) - 200, len(whole))}:
        for mask in (1, 128):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            with pytest.raises(CheckpointError, match=r"c\.pt: is (damaged|no checkpoint)"):
                read(path)


@pytest.mark.parametrize("left", [0, 1, 64, 92, 500, -1, -2, -92, -93])
def test_a_file_cut_short_is_refused(tmp_path, left):
    path = tmp_path / "c.pt"
    write(path, STATE)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CheckpointError, match=r"is no checkpoint of the trainer, or its end is missing \(.* bytes\)$"):
        read(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(CheckpointError):
        read(path)


def test_a_foreign_file_is_refused_and_not_written_over(tmp_path):
    path = tmp_path / "thesis.txt"
    for content in (b"", b"all I have", pickle.dumps(STATE)):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"thesis.txt: is no checkpoint"):
            read(path)
        with pytest.raises(CheckpointError, match=r"is no whole checkpoint, so it is not written over"):
            write(path, STATE)
        assert path.read_bytes() == content
    torch.save(STATE, path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        read(path)
    assert files(tmp_path) == ["thesis.txt"]


def test_code_is_not_run_even_under_our_seal(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "bang"),)

    with pytest.raises(CheckpointError, match="holds what weights_only=True does not load"):
        write(tmp_path / "c.pt", {"bomb": Bomb()})  # it cannot be read, so it is not written
    (tmp_path / "c.pt").write_bytes(checkpoint._sealed({"bomb": Bomb()}))
    with pytest.raises(CheckpointError, match="holds what weights_only=True does not load"):
        read(tmp_path / "c.pt")
    assert files(tmp_path) == ["c.pt"]


def test_a_damaged_checkpoint_does_not_push_out_the_whole_one_before_it(tmp_path):
    path = tmp_path / "c.pt"
    write(path, {"i": 0})
    write(path, {"i": 1})
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=re.escape(f"; the checkpoint before it is {path}.previous")):
        read(path)
    write(path, {"i": 2})
    assert (read(path), read(f"{path}.previous")) == ({"i": 2}, {"i": 0})


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch, failing):
    write(tmp_path / "c.pt", {"i": 0})

    def refuse(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, refuse)
        with pytest.raises(CheckpointError, match=r"c.pt: cannot be written: No space left on device"):
            write(tmp_path / "c.pt", {"i": 1})
    assert read(tmp_path / "c.pt") == {"i": 0}
    write(tmp_path / "c.pt", {"i": 2})
    assert read(tmp_path / "c.pt") == {"i": 2}


def test_targets_that_cannot_be_written_are_known_before(tmp_path):
    check_target(tmp_path / "new.pt")
    for bad, words in ((tmp_path / "no" / "c.pt", "there is no folder"), (tmp_path, "is a folder")):
        with pytest.raises(CheckpointError, match=words):
            check_target(bad)
    with pytest.raises(CheckpointError, match="cannot be read: No such file or directory"):
        read(tmp_path / "new.pt")
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named_before(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(CheckpointError, match="permission denied"):
        check_target(tmp_path / "c.pt")


class Ranks:
    """An engine whose ranks have the file or not, as `there` says by rank; this process is rank 0."""

    def __init__(self, there):
        self.there, self.world_size = there, len(there)

    def first(self, function):
        return function()

    def gather(self, rows):
        assert rows == [None] * self.world_size  # here it is not
        return ["a machine" if has else None for has in self.there]


def test_a_file_that_rank_0_alone_has_not_is_not_taken_for_one_that_nobody_has(tmp_path):
    path = tmp_path / "c.pt"
    assert not exists(path, Ranks([False] * 3))
    with pytest.raises(CheckpointError) as error:
        exists(path, Ranks([False, True, False]))
    what = "rank 1 on a machine has it, but not rank 0, which reads and writes it"
    assert str(error.value) == f"{path}: {what}: choose a folder that all machines share, or copy it there"
    path.touch()
    assert exists(path, Ranks([True, False]))
