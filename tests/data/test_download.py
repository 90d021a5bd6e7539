import hashlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from file_server import FileServer

from d2lmini.data import download
from d2lmini.data.download import DownloadError, fetch

NAME = "numbers.gz"
BODY = random.Random(0).randbytes(300_001)
FACTS = (hashlib.sha256(BODY).hexdigest(), len(BODY))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with FileServer({NAME: BODY}) as server:
        yield server


def get(server, behaviours, folder):
    return fetch(NAME, [server.mirror(b) for b in behaviours.split()], *FACTS, folder)


def assert_complete(path, folder):
    assert path == folder / NAME
    assert path.read_bytes() == BODY
    assert not (folder / f"{NAME}.part").exists()


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return text


@pytest.mark.parametrize("behaviour", ["good", "ignores_range", "unsized"])
def test_a_file_is_fetched_into_a_new_folder_and_then_no_more(server, tmp_path, behaviour):
    folder = tmp_path / "a" / "b"
    assert_complete(get(server, behaviour, folder), folder)
    assert_complete(get(server, behaviour, folder), folder)
    assert server.seen() == [(behaviour, None)]


def test_an_existing_good_file_is_left_alone(server, tmp_path):
    (tmp_path / NAME).write_bytes(BODY)
    before = (tmp_path / NAME).stat()
    get(server, "good", tmp_path)
    after = (tmp_path / NAME).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert os.listdir(tmp_path) == [NAME]
    assert server.requests == []


@pytest.mark.parametrize("old", [b"", BODY[:-1], BODY[:-1] + b"?", BODY + b"?"])
def test_an_existing_wrong_file_is_replaced_only_by_a_right_one(server, tmp_path, old):
    (tmp_path / NAME).write_bytes(old)
    with pytest.raises(DownloadError):
        get(server, "corrupt cut", tmp_path)
    assert (tmp_path / NAME).read_bytes() == old
    assert_complete(get(server, "good", tmp_path), tmp_path)


def test_mirrors_are_tried_in_order(server, tmp_path):
    assert_complete(get(server, "missing corrupt page endless good good", tmp_path), tmp_path)
    assert [b for b, _ in server.seen()] == ["missing", "corrupt", "page", "endless", "good"]


def test_a_cut_connection_is_resumed_by_the_next_mirror(server, tmp_path):
    assert_complete(get(server, "cut cut good", tmp_path), tmp_path)
    half = len(BODY) // 2
    assert server.seen() == [
        ("cut", None), ("cut", f"bytes={half}-"), ("good", f"bytes={(half + len(BODY)) // 2}-"),
    ]  # fmt: skip


def test_a_cut_connection_is_resumed_by_the_next_call(server, tmp_path):
    with pytest.raises(DownloadError, match=f"ended after {len(BODY) // 2} of {len(BODY)} bytes"):
        get(server, "cut", tmp_path)
    assert (tmp_path / f"{NAME}.part").read_bytes() == BODY[: len(BODY) // 2]
    assert_complete(get(server, "good", tmp_path), tmp_path)
    assert server.seen()[1:] == [("good", f"bytes={len(BODY) // 2}-")]


@pytest.mark.parametrize("length", [1, len(BODY) - 1])
def test_a_part_is_resumed_at_its_last_byte(server, tmp_path, length):
    (tmp_path / f"{NAME}.part").write_bytes(BODY[:length])
    assert_complete(get(server, "good", tmp_path), tmp_path)
    assert server.seen() == [("good", f"bytes={length}-")]


def test_a_whole_part_needs_no_request(server, tmp_path):
    (tmp_path / f"{NAME}.part").write_bytes(BODY)
    assert_complete(get(server, "good", tmp_path), tmp_path)
    assert server.requests == []


@pytest.mark.parametrize("part", [b"?" * 1000, b"?" * len(BODY), b"?" * (len(BODY) + 1)])
def test_a_wrong_part_is_given_up_for_a_fresh_start_at_the_same_mirror(server, tmp_path, part):
    (tmp_path / f"{NAME}.part").write_bytes(part)
    assert_complete(get(server, "good", tmp_path), tmp_path)
    assert server.seen()[-1] == ("good", None)


@pytest.mark.parametrize(
    ("behaviour", "again"), [("ignores_range", []), ("refuses_range", [None]), ("other_range", [None])]
)
def test_a_server_that_will_not_resume_starts_again(server, tmp_path, behaviour, again):
    (tmp_path / f"{NAME}.part").write_bytes(BODY[:1000])
    assert_complete(get(server, behaviour, tmp_path), tmp_path)
    assert server.seen() == [(behaviour, wanted) for wanted in ["bytes=1000-", *again]]


def test_a_login_page_does_not_cost_what_has_arrived(server, tmp_path):
    (tmp_path / f"{NAME}.part").write_bytes(BODY[:1000])
    with pytest.raises(DownloadError, match="offers 25 bytes"):
        get(server, "page", tmp_path)
    assert (tmp_path / f"{NAME}.part").read_bytes() == BODY[:1000]


def test_corrupted_bytes_are_not_kept(server, tmp_path):
    with pytest.raises(DownloadError, match="checksum") as error:
        get(server, "corrupt endless", tmp_path)
    assert server.mirror("corrupt") in one_line(error)
    assert not list(tmp_path.glob(f"{NAME}*[!k]"))  # only the lock is there


def test_more_than_the_file_is_not_read_to_its_end(server, tmp_path):
    with pytest.raises(DownloadError, match="checksum"):
        get(server, "endless", tmp_path)
    assert server.hung_up.wait(60)


def test_a_stalled_server_times_out_and_the_next_resumes(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 2)
    assert_complete(get(server, "stall good", tmp_path), tmp_path)
    assert server.seen() == [("stall", None), ("good", f"bytes={len(BODY) // 2}-")]


def test_no_network_is_one_line_that_names_every_mirror_and_what_to_do(server, tmp_path):
    mirrors = ["http://127.0.0.1:1/a", server.mirror("missing")]
    with pytest.raises(DownloadError) as error:
        fetch(NAME, mirrors, *FACTS, tmp_path)
    text = one_line(error)
    assert text.startswith(f"{NAME}: no mirror delivered it (http://127.0.0.1:1/a/{NAME}: ")
    assert "refused" in text
    assert f"{server.mirror('missing')}{NAME}: HTTP 404 Not Found" in text
    assert "D2LMINI_DATA" in text


def test_too_little_space_is_told_before_anything_is_asked_for(server, tmp_path, monkeypatch):
    (tmp_path / f"{NAME}.part").write_bytes(BODY[:1000])
    usage, missing = shutil.disk_usage(tmp_path), len(BODY) - 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=missing - 1))
    with pytest.raises(DownloadError, match=rf"{missing} bytes are still to come.* {missing - 1} bytes free"):
        get(server, "good", tmp_path)
    assert server.requests == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=missing))
    assert_complete(get(server, "good", tmp_path), tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, where every write finds no space")
def test_a_disk_that_fills_up_is_one_line(server, tmp_path):
    (tmp_path / f"{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(DownloadError, match="No space left on device; make room") as error:
        get(server, "good good", tmp_path)
    assert one_line(error).startswith(f"{NAME}: can't be kept in {tmp_path}: ")
    assert not (tmp_path / NAME).exists()
    assert len(server.requests) == 1  # another mirror would not help


LIMITED = """
import resource, sys
from d2lmini.data.download import DownloadError, fetch
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    fetch(sys.argv[1], [sys.argv[2]], sys.argv[3], int(sys.argv[4]), sys.argv[5])
except DownloadError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_what_was_written_before_the_disk_was_full_is_kept_and_resumed(server, tmp_path):
    done = run_python(LIMITED, NAME, server.mirror("good"), *FACTS, tmp_path).communicate(timeout=100)[0]
    assert "File too large" in done
    assert len(done.splitlines()) == 1
    assert (tmp_path / f"{NAME}.part").read_bytes() == BODY[:100_000]
    assert_complete(get(server, "good", tmp_path), tmp_path)
    assert server.seen()[1:] == [("good", "bytes=100000-")]


def test_a_folder_that_can_not_be_made_is_one_line(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"can't be kept in .*file.*D2LMINI_DATA") as error:
        get(server, "good", tmp_path / "file" / "cache")
    one_line(error)
    assert server.requests == []


def test_no_permission_is_one_line(server, tmp_path, monkeypatch):
    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(download, "FileLock", forbidden)  # a superuser, who may run the tests, is never refused
    with pytest.raises(DownloadError, match=r"can't be kept in .*: Permission denied; ") as error:
        get(server, "good", tmp_path)
    one_line(error)


def test_a_lock_held_too_long_is_one_line(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "LOCK_SECONDS", 0.1)
    with download.FileLock(tmp_path / f"{NAME}.lock"), pytest.raises(DownloadError, match="another process") as error:
        get(server, "good", tmp_path)
    one_line(error)
    assert_complete(get(server, "good", tmp_path), tmp_path)


FETCH = """
import sys
from d2lmini.data.download import fetch
print("ready", flush=True)
print(fetch(sys.argv[1], [sys.argv[2]], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
"""


def run_python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_two_processes_download_once(server, tmp_path):
    arguments = (NAME, server.mirror("slow"), *FACTS, tmp_path)
    with run_python(FETCH, *arguments) as first, run_python(FETCH, *arguments) as second:
        assert server.arrived.wait(100)  # one of them has half of the file
        assert [first.stdout.readline(), second.stdout.readline()] == ["ready\n", "ready\n"]
        server.release.wait(0.5)  # time for the other to go wrong
        server.release.set()
        outputs = [process.communicate(timeout=100)[0] for process in (first, second)]
    assert outputs == [f"{tmp_path / NAME}\n"] * 2
    assert_complete(tmp_path / NAME, tmp_path)
    assert server.seen() == [("slow", None)]


def test_a_killed_download_leaves_nothing_that_blocks_the_next(server, tmp_path):
    with run_python(FETCH, NAME, server.mirror("slow"), *FACTS, tmp_path) as process:
        assert server.arrived.wait(100)
        process.kill()
    server.release.set()
    assert_complete(get(server, "good", tmp_path), tmp_path)
