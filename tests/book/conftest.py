"""The book's own server, and a browser tab for the tests of one file."""

import threading

import pytest
import serve
from browsing import HTML, Visit


@pytest.fixture(scope="module")
def site():
    server = serve.make_server(0, HTML)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def visit(site, browser):
    return Visit(browser, site)
