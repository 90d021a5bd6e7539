import hashlib
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import FileServer

from d2lmini.data.download import DownloadError, fetch

NAME = "numbers.gz"
BODY = random.Random(0).randbytes(300_001)
FACTS = (hashlib.sha256(BODY).hexdigest(), len(BODY))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with FileServer({NAME: BODY}) as server:
        yield server


def get(server, behaviours, folder, **options):
    return fetch(NAME, [server.mirror(b) for b in behaviours.split()], *FACTS, folder, **options)


def assert_complete(path, folder):
    assert path == folder / NAME
    assert path.read_bytes() == BODY
    assert set(os.listdir(folder)) <= {NAME, f"{NAME}.lock"}


def refused(server, behaviours, folder, **options):
    with pytest.raises(DownloadError) as error:
        get(server, behaviours, folder, **options)
    text = str(error.value)
    assert text.startswith(f"{NAME}: ")
    assert "\n" not in text
    assert "D2LMINI_DATA" in text
    return text


@pytest.mark.parametrize("old", [b"", BODY[:-1], BODY[:-1] + b"?", BODY + b"?"])
def test_an_existing_wrong_file_is_replaced_only_by_a_right_one(server, tmp_path, old):
    (tmp_path / NAME).write_bytes(old)
    refused(server, "corrupt cut", tmp_path)
    assert (tmp_path / NAME).read_bytes() == old
    assert_complete(get(server, "good", tmp_path), tmp_path)


def test_mirrors_are_tried_in_order(server, tmp_path):
    assert_complete(get(server, "missing corrupt endless cut astray good good", tmp_path), tmp_path)
    assert server.seen() == ["missing", "corrupt", "endless", "cut", "astray", "good"]


def test_each_mirrors_failure_is_named(server, tmp_path):
    text = refused(server, "missing corrupt cut", tmp_path)
    assert all(server.mirror(b) in text for b in ("missing", "corrupt", "cut"))
    assert all(reason in text for reason in ("404", "checksum", "got 150000"))
    with pytest.raises(DownloadError, match="refused"):
        fetch(NAME, ["http://127.0.0.1:1/a"], *FACTS, tmp_path)


def test_more_than_the_file_is_not_read_to_its_end(server, tmp_path):
    refused(server, "endless", tmp_path)
    assert server.hung_up.wait(60)


def test_a_mirror_that_sends_too_slowly_is_given_up_for_the_next(server, tmp_path):
    assert_complete(get(server, "drip dribble good", tmp_path, limit=1), tmp_path)
    assert server.seen() == ["drip", "dribble", "good"]
    assert "too long" in refused(server, "drip", tmp_path / "other", limit=0.5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, where every write finds no space")
def test_a_disk_that_fills_up_is_one_line_and_no_reason_to_try_another_mirror(server, tmp_path):
    (tmp_path / f"{NAME}.part").symlink_to("/dev/full")
    assert "No space" in refused(server, "good good", tmp_path)
    assert not (tmp_path / NAME).exists()
    assert server.seen() == ["good"]


def test_a_folder_that_can_not_be_made_is_one_line(server, tmp_path):
    (tmp_path / "file").write_text("")
    assert "kept" in refused(server, "good", tmp_path / "file" / "cache")
    assert server.seen() == []


def test_two_at_a_time_download_once(server, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        paths = [pool.submit(get, server, "slow", tmp_path) for _ in range(2)]
        assert server.arrived.wait(60)  # one of them has half of the file
        server.release.wait(0.2)  # time for the other to go wrong
        server.release.set()
        for path in paths:
            assert_complete(path.result(60), tmp_path)
    assert server.seen() == ["slow"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_download_leaves_nothing_that_blocks_the_next(server, tmp_path):
    child = os.fork()
    if child == 0:
        try:
            get(server, "slow", tmp_path)
        finally:
            os._exit(0)  # it must not go on as a second pytest
    assert server.arrived.wait(60)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    server.release.set()
    assert_complete(get(server, "good", tmp_path), tmp_path)
