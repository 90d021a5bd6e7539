"""The built book on a plain host and beside kernels, and a browser tab for the tests of one file."""

import http.server
import os
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from browsing import HTML, Visit

SERVE = Path(__file__).resolve().parents[2] / "tools" / "serve.py"


class StaticHost(http.server.SimpleHTTPRequestHandler):
    """A host that knows nothing of kernels."""

    protocol_version = "HTTP/1.1"  # one connection serves many requests

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(StaticHost, directory=str(HTML)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def visit(site, browser):
    return Visit(browser, site)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """`make serve`; the file `errors` has what it says of errors. It opens its address with the program `true`."""
    errors = tmp_path_factory.mktemp("served") / "errors"
    command, environment = [sys.executable, SERVE, "0"], os.environ | {"BROWSER": "true"}
    with (
        errors.open("w") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment) as process,
    ):
        line = process.stdout.readline()
        assert line, errors.read_text()
        base, token = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=(\w+)", line).groups()
        port = int(base.rpartition(":")[2])
        yield SimpleNamespace(base=base, port=port, token=token, process=process, errors=errors)
        process.terminate()
