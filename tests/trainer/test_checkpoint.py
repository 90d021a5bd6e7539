"""Checkpoint files: whole or refused, never half there, never in place of another kind of file."""

import os
import pickle
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import simgpu
from d2lmini.distributed.errors import CheckpointError
from d2lmini.trainer import atomic_files, checkpoint
from d2lmini.trainer.checkpoint import FORMAT, Checkpoint

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": {"list": [1, 2.5, None, "x"], "tuple": (True, torch.zeros(0))}}


@pytest.fixture
def file(tmp_path):
    return Checkpoint(tmp_path / "c.pt")


def same(a, b):
    return torch.equal(a["a"], b["a"]) and repr(a["b"]) == repr(b["b"])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refused(action, words):
    """Return the error, one line that begins with a file's name, with which an action is refused."""
    with pytest.raises(CheckpointError, match=words) as raised:
        action()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["c.pt", os.fsdecode(b"\xff\xe9 c.pt"), "a\nb.pt"], ids=["", "no UTF-8", "lines"])
def test_what_was_written_is_read_here_and_by_torch_itself(tmp_path, name):
    file = Checkpoint(tmp_path / name)
    file.write(STATE)
    assert same(Checkpoint(str(file.path)).read(), STATE)
    with open(file.path, "rb") as opened:
        assert same(torch.load(opened, weights_only=True), STATE)
    assert names(tmp_path) == [name]


def test_tensors_of_a_device_are_read_where_that_device_is_not(file):
    simgpu.enable(2)
    file.write({"a": torch.arange(3.0, device="sim:1")})
    found = torch.load(file.path, weights_only=True)["a"]  # no map_location: the file names no device
    assert found.device.type == "cpu"
    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("links", [True, False])
def test_the_one_before_is_kept_also_without_hard_links(file, tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(95, "Operation not supported")))
    for i in range(4):
        file.write({"i": i})
        assert file.read() == {"i": i}
        if i:
            assert Checkpoint(file.previous).read() == {"i": i - 1}
    assert names(tmp_path) == ["c.pt", "c.pt.previous"]


def test_no_changed_byte_changes_what_is_read(file):
    file.write(STATE)
    whole, seen = file.path.read_bytes(), 0
    for place in range(0, len(whole), 3):
        for mask in (1, 128):
            file.path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            try:
                found = file.read()
            except CheckpointError:
                seen += 1
            else:
                assert same(found, STATE)  # that was a date, or what fills a gap
    assert seen > len(whole) / 3


@pytest.mark.parametrize("left", [0, 1, 36, 37, 500, -1, -2, -37, -38])
def test_a_file_cut_short_is_refused(file, left):
    file.write(STATE)
    file.path.write_bytes(file.path.read_bytes()[:left])
    refused(file.read, "no checkpoint")


def test_of_a_file_cut_short_the_last_whole_one_is_named_and_can_be_gone_on_from(tmp_path):
    file = Checkpoint(tmp_path / "my\nrun's.pt")
    for i in range(2):
        file.write({"i": i})
    file.path.write_bytes(file.path.read_bytes()[:-40])
    said = {refused(action, "mv").split("`")[1] for action in (file.read, file.check, lambda: file.write({"i": 2}))}
    assert len(said) == 1
    subprocess.run(["bash", "-c", said.pop()], check=True)
    assert file.read() == {"i": 0}
    file.path.rename(file.previous)
    assert "mv" in refused(file.is_there, "gone")  # not: there is none, so start from the beginning
    file.previous.unlink()
    assert not file.is_there()


def test_a_foreign_file_is_refused_and_not_written_over(tmp_path):
    file = Checkpoint(tmp_path / "thesis.txt")
    torch.save(STATE, file.path)
    for content in (b"", b"all I have", pickle.dumps(STATE), file.path.read_bytes()):
        file.path.write_bytes(content)
        refused(file.read, "no checkpoint")
        refused(lambda: file.write(STATE), "not written over")
        assert file.path.read_bytes() == content
    assert names(tmp_path) == ["thesis.txt"]


def test_code_is_not_run(file, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "bang"),)

    refused(lambda: file.write({"bomb": Bomb()}), "weights_only")  # it cannot be read, so it is not written
    assert names(tmp_path) == []
    torch.save({"format": FORMAT, "bomb": Bomb()}, file.path)
    refused(file.read, "weights_only")
    assert names(tmp_path) == ["c.pt"]


def test_a_damaged_checkpoint_does_not_push_out_the_whole_one_before_it(file):
    for i in range(2):
        file.write({"i": i, "more": "p" * 50})
    file.path.write_bytes(file.path.read_bytes().replace(b"ppp", b"ppq", 1))
    file = Checkpoint(file.path)  # of another process
    assert str(file.previous) in refused(file.read, "damaged")
    file.write({"i": 2})
    assert (file.read()["i"], Checkpoint(file.previous).read()["i"]) == (2, 0)


def die_at(moment):
    """Let this process be killed at so many calls of what writing a checkpoint does to files."""
    left = [moment]

    def dying(function):
        def call(*args):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return call

    checkpoint._save = dying(checkpoint._save)  # before it, the file is there and empty
    for name in ("fsync", "link", "replace"):
        setattr(os, name, dying(getattr(os, name)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_killed_at_any_moment_of_writing_a_whole_checkpoint_is_there(tmp_path):
    ended, moments = signal.SIGKILL, 0
    while ended:
        moments += 1
        file = Checkpoint(tmp_path / f"{moments}.pt")
        file.write({"i": 0})
        child = os.fork()
        if child == 0:
            die_at(moments)
            file.write({"i": 1})
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL)
        assert Checkpoint(file.path).read() in ({"i": 0}, {"i": 1})
        file.write({"i": 2})  # nothing that is left over stands in the way
        assert file.read() == {"i": 2}
    assert moments == 6  # save, fsync, link, replace, replace, and none
    assert {path.suffix for path in tmp_path.iterdir()} == {".pt", ".previous"}


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_checkpoints_and_nothing_else(file, tmp_path, monkeypatch, failing):
    for i in range(2):
        file.write({"i": i})
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, Mock(side_effect=OSError(28, "No space left on device")))
        assert "mv" not in refused(lambda: file.write({"i": 2}), "No space")  # there is no need to go back
    assert (file.read(), Checkpoint(file.previous).read()) == ({"i": 1}, {"i": 0})
    assert names(tmp_path) == ["c.pt", "c.pt.previous"]


def test_a_disk_that_is_full_is_told_by_its_own_words(file, tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        refused(lambda: file.write({"a": torch.zeros(10_000)}), "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


def test_targets_that_cannot_be_written_are_known_before(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    Checkpoint(tmp_path / "new.pt").check()
    for bad, words in (("no/c.pt", "no folder"), ("", "folder"), ("x" * 250, "too long"), ("pipe", "regular")):
        refused(Checkpoint(tmp_path / bad).check, words)
    for bad, words in (("new.pt", "No such file"), ("", "directory"), ("pipe", "regular")):
        refused(Checkpoint(tmp_path / bad).read, words)
    refused(Checkpoint("/dev/null").check, "regular")
    assert names(tmp_path) == ["pipe"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named_before(file, tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    refused(file.check, "ermission denied")


def test_a_link_is_followed_and_a_mode_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.pt").symlink_to(tmp_path / "disk" / "c.pt")
    file = Checkpoint(tmp_path / "link.pt")
    file.write({"i": 0})
    file.path.chmod(0o640)
    file.write({"i": 1})
    assert names(tmp_path) == ["disk", "link.pt"]
    assert (tmp_path / "link.pt").is_symlink()
    assert names(tmp_path / "disk") == ["c.pt", "c.pt.previous"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640


def test_two_runs_cannot_write_to_one_file(file, tmp_path):
    with Checkpoint(file.path).held():
        refused(file.held().__enter__, "another run")
    lock = tmp_path / ".c.pt.lock"
    lock.touch()  # as a killed run leaves it: the lock went with its process
    with file.held():
        assert names(tmp_path) == [lock.name]
    assert names(tmp_path) == []
    for other in (lock.mkdir, lambda: (lock.rmdir(), lock.symlink_to("else"))):
        other()
        refused(file.held().__enter__, "locked")


def test_no_file_that_is_not_ours_is_touched(file, tmp_path):
    (tmp_path / "mine").write_text("all I have")
    for end in (".tmp", ".lock", ".previous.tmp"):
        (tmp_path / f"c.pt{end}").symlink_to(tmp_path / "mine")
    before = names(tmp_path)
    with file.held():
        file.write({"i": 0})
        file.write({"i": 1})
    assert names(tmp_path) == sorted([*before, "c.pt", "c.pt.previous"])
    assert (tmp_path / "mine").read_text() == "all I have"
    assert not file.path.is_symlink()
    for other in ((tmp_path / "mine").read_bytes(), None):
        file.previous.unlink()
        os.mkfifo(file.previous) if other is None else file.previous.write_bytes(other)
        assert "previous" in refused(file.check, "not written over")


class Ranks:
    """The processes of a run, of which this is rank 0: they have the file or not, as `there` says."""

    def __init__(self, there):
        self.there, self.here = there, range(1)

    def on_rank_0(self, function):
        return function()

    def gather(self, rows):
        assert rows == [None]  # here it is not
        return ["a machine" if has else None for has in self.there]


def test_a_file_that_rank_0_alone_has_not_is_not_taken_for_one_that_nobody_has(file):
    assert not file.found(Ranks([False] * 3))
    assert "rank 1 on a machine" in refused(lambda: file.found(Ranks([False, True, False])), "not rank 0")
    file.path.touch()
    assert file.found(Ranks([True, False]))


def test_json_goes_where_it_was_sent(tmp_path):
    """To pipes as they are, through links, in place of a file only when it is whole."""
    (tmp_path / "link.json").symlink_to(tmp_path / "r.json")
    atomic_files.write_json(tmp_path / "link.json", {"a": 1})
    (tmp_path / "r.json").chmod(0o600)
    with pytest.raises(ValueError, match="float"):
        atomic_files.write_json(tmp_path / "link.json", {"a": float("nan")})
    atomic_files.write_json(tmp_path / "link.json", {"a": "\udcff"})  # a name that is no UTF-8
    assert (tmp_path / "link.json").is_symlink()
    assert "udcff" in (tmp_path / "r.json").read_text()
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o600
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        atomic_files.check(tmp_path / "pipe")
        atomic_files.write_json(tmp_path / "pipe", [])
        assert reader.communicate(timeout=60)[0] == "[]\n"
    assert (tmp_path / "pipe").is_fifo()
    write = "from d2lmini.trainer.atomic_files import write_json"
    to_stdout = f"{write}; print(1, flush=True); write_json('/dev/stdout', 2); print(3)"
    with open(tmp_path / "log", "a") as log:  # as a shell's >> opens it
        subprocess.run([sys.executable, "-c", to_stdout], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "1\n2\n3\n"
    (tmp_path / "circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
    for bad, words in (("circle", "symbolic"), ("s", "socket"), ("/proc/self/none", "No"), ("no\n/r.json", r"no\\n$")):
        with pytest.raises(OSError, match=words):
            atomic_files.check(tmp_path / bad)
    assert names(tmp_path) == ["circle", "link.json", "log", "pipe", "r.json", "s"]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_json_in_memory_is_a_file_like_another():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "r.json")
        for _ in range(2):
            atomic_files.write_json(file, [])
        assert file.read_text() == "[]\n"


def test_a_disk_without_room_for_json_is_known_before_with_the_files_name(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        atomic_files.check(tmp_path / "r.json", 1000)
        with pytest.raises(OSError, match="File too large"):
            atomic_files.check(tmp_path / "r.json", 1001)
        with pytest.raises(OSError, match=r"File too large: .*r\.json"):
            atomic_files.write_json(tmp_path / "r.json", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space"):
            atomic_files.check("/dev/full", 1000)
        with pytest.raises(OSError, match=r"No space.*/dev/full"):
            atomic_files.write_json("/dev/full", 1)
