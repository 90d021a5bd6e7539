"""The server of `make serve`: the book, JupyterLab and kernels, for the one who has the token and for nobody else."""

import http.client
import json
import re
import socket

import pytest
import serve

pytestmark = pytest.mark.process
PAGE = "/chapters/devices.html"
PRIVATE = ["/", PAGE, "/_static/live.js", "/lab", "/api/kernels", "/api/contents"]


@pytest.fixture
def ask(served):
    """A function that makes a request and returns (status, headers, body)."""

    def ask(path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    return ask


@pytest.fixture
def cookie(ask, served):
    """The cookies that a browser has once it has opened the address with the token."""
    status, headers, _ = ask(f"/?token={served.token}")
    assert status == 200
    return "; ".join(cookie.split(";")[0] for cookie in headers.get_all("Set-Cookie"))


def test_nothing_is_reached_without_the_token(ask, served):
    for path in PRIVATE:
        status, headers, _ = ask(path)
        login = status == 302 and headers["Location"].startswith("/login")
        assert login or status == 403, path
    assert ask("/files/README.md")[0] == 302
    assert ask("/api/kernels")[0] == ask("/api/kernels", "POST", "{}")[0] == 403
    assert ask("/api/kernels", Authorization="token 0123")[0] == 403


def test_its_cookie_opens_the_book_jupyterlab_and_the_kernels(ask, cookie):
    for path in PRIVATE:
        assert ask(path, Cookie=cookie)[0] == 200, path
    assert ask("/nothing.html", Cookie=cookie)[0] == 404
    assert b"apputils-extension:announcements" in ask("/lab", Cookie=cookie)[2]  # is left out: it would ask for news
    assert ask("/_static/../../../README.md", Cookie=cookie)[0] in (403, 404)
    _, headers, page = ask(PAGE, Cookie=cookie)
    assert b"<body data-served " in page
    assert len(page) == int(headers["Content-Length"])
    assert ask(PAGE, Cookie=cookie, If_None_Match=headers["Etag"])[0] == 304


def test_other_hosts_and_other_origins_are_refused(ask, cookie):
    xsrf = next(part.removeprefix("_xsrf=") for part in cookie.split("; ") if part.startswith("_xsrf="))
    for path in (PAGE, "/api/kernels", "/lab"):
        assert ask(path, Cookie=cookie, Host="example.org")[0] == 403, path
    foreign = {"Cookie": cookie, "Origin": "http://example.org"}
    assert ask("/api/kernels", **foreign)[0] >= 400
    assert ask("/api/kernels", "POST", "{}", **foreign, X_XSRFToken=xsrf)[0] >= 400
    assert ask("/api/kernels", "POST", "{}", Cookie=cookie)[0] == 403  # without the token that its pages alone can read
    assert json.loads(ask("/api/kernels", Cookie=cookie)[2]) == []
    _, _, kernel = ask("/api/kernels", "POST", "{}", Cookie=cookie, X_XSRFToken=xsrf)
    address = f"/api/kernels/{json.loads(kernel)['id']}"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    assert ask(f"{address}/channels", **foreign, **upgrade)[0] == 403
    assert ask(f"{address}/channels", **upgrade)[0] == 403
    assert ask(address, "DELETE", Cookie=cookie, X_XSRFToken=xsrf)[0] == 204


def test_a_browser_that_leaves_in_the_middle_of_a_file_is_no_error(served, cookie):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.port)) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing breaks it off
            browser.sendall(f"GET {PAGE} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
            browser.recv(1000)
    # An ipykernel that is ended while it starts says so, whoever its server is.
    assert re.sub(r"\[IPKernelApp\] .*KeyboardInterrupt caught.*\n", "", served.errors.read_text()) == ""


def test_a_taken_or_wrong_port_gives_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [str(taken.getsockname()[1]), "x", "-1", "65536", ""]
        assert [serve.main([port]) for port in ports] == [1] * 5
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_an_idle_kernel_is_ended_after_half_an_hour_connected_or_not():
    culling = serve.settings(8000, "token").Kernels
    assert (culling.cull_idle_timeout, culling.cull_connected) == (1800, True)
    assert culling.cull_interval <= 60
