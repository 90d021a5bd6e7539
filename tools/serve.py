"""Show the built book at http://127.0.0.1:PORT with kernels beside it, so that its pages can run their cells.

One jupyter_server does all: the book at /, JupyterLab at /lab, kernels at /api. Who may reach it (a token in the
address, then a cookie; no other origin, no other host name) is jupyter_server's own to check.
"""

import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from re import escape

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from notebook_env import ENVIRONMENT
from tornado.ioloop import IOLoop
from tornado.web import StaticFileHandler, authenticated
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
IDLE_S = 30 * 60  # a kernel that has had nothing to do for so long is ended
AWAY_S = 2  # a page whose connection broke has so long to come back for its kernel
UNSEEN_S = 60  # a page has so long to connect to the kernel that it started


class Pages(JupyterHandler, StaticFileHandler):
    """The built book, to those who have the token; its pages are told that there are kernels beside them."""

    @authenticated
    async def get(self, path, include_body=True):
        """Send a file, and with it the cookie that the page's requests for kernels must name."""
        self.xsrf_token  # noqa: B018 - reading it sets the cookie
        await StaticFileHandler.get(self, path, include_body)

    @authenticated
    async def head(self, path):
        """Send a file's headers."""
        await self.get(path, include_body=False)

    def set_extra_headers(self, path):
        """Let browsers ask each time whether a file has changed: the same address may show a book without kernels."""
        self.set_header("Cache-Control", "no-cache")

    @classmethod
    def get_content(cls, abspath, start=None, end=None):
        """Return a file's bytes; those of a page with the mark that live.js looks for."""
        if not abspath.endswith(".html"):
            return super().get_content(abspath, start, end)
        return Path(abspath).read_bytes().replace(b"<body ", b"<body data-served ", 1)[start:end]

    def get_content_size(self):
        """Return the number of those bytes."""
        page = self.absolute_path.endswith(".html")
        return len(self.get_content(self.absolute_path)) if page else super().get_content_size()


class Kernels(AsyncMappingKernelManager):
    """Kernels, of which a page's own ends with its page. A notebook in JupyterLab has a session, a page has none."""

    async def start_kernel(self, **kwargs):
        """Start a kernel and return its id."""
        kernel_id = await super().start_kernel(**kwargs)
        IOLoop.current().call_later(UNSEEN_S, self.end_if_left, kernel_id)
        return kernel_id

    def notify_disconnect(self, kernel_id):
        """Notice that a connection was closed; one that was never counted does not count now."""
        if kernel_id in self and self.kernel_model(kernel_id)["connections"]:
            super().notify_disconnect(kernel_id)
        IOLoop.current().call_later(AWAY_S, self.end_if_left, kernel_id)

    async def end_if_left(self, kernel_id):
        """End a kernel that nobody is connected to and no notebook owns."""
        sessions = await self.parent.session_manager.list_sessions()
        owned = any(session["kernel"]["id"] == kernel_id for session in sessions)
        if kernel_id in self and not owned and not self.kernel_model(kernel_id)["connections"]:
            await self.shutdown_kernel(kernel_id)


class Server(ServerApp):
    """jupyter_server with the book in it."""

    def load_config_file(self, suppress_errors=True):
        """Leave the reader's own settings of Jupyter alone: they may open another server to others."""

    def init_webapp(self):
        """Add the book to what the server shows, ahead of its own address `/`."""
        super().init_webapp()
        names = "|".join(escape(path.name) for path in (BUILD / "html").iterdir())
        pages = (rf"/((?:{names})(?:/.*)?|)", Pages, {"path": str(BUILD / "html"), "default_filename": "index.html"})
        self.web_app.add_handlers(".*", [pages])


def settings(port, token):
    """Return the server's settings."""
    config = Config()
    config.ServerApp.update(
        ip="127.0.0.1",
        port=port,
        port_retries=0,
        root_dir=str(ROOT),
        kernel_manager_class=Kernels,
        allow_root=True,  # as in a container; only this machine reaches it
        jpserver_extensions={"jupyterlab": True, "jupyter_server_terminals": True},
    )
    config.Application.log_level = "CRITICAL"  # it calls a page that leaves while its kernel starts an error
    config.IdentityProvider.token = token
    notebooks = BUILD / "notebooks"
    config.FileContentsManager.preferred_dir = str(notebooks if notebooks.is_dir() else ROOT / "chapters")
    config.Kernels.update(cull_idle_timeout=IDLE_S, cull_interval=60, cull_connected=True, transport_encryption="auto")
    config.ZMQChannelsWebsocketConnection.limit_rate = False  # an explorable figure is a megabyte; live.js limits text
    return config


def free_port(port):
    """Return a port that can be had, `port` unless it is 0; raise OSError if it is taken."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", port))
        return place.getsockname()[1]


def main(argv):
    """Serve until Ctrl+C; return the exit status."""
    port = argv[0] if argv else "8000"
    if not (port.isdecimal() and int(port) < 65536):
        print(f"PORT must be a number from 0 to 65535, got {port}", file=sys.stderr)
        return 1
    try:
        port = free_port(int(port))
    except OSError as error:
        print(f"can't serve at port {port}: {error.strerror}; choose another: make serve PORT=...", file=sys.stderr)
        return 1
    # A cell that is run gives what the page shows: simulated GPUs and one thread, unless the reader has set otherwise.
    os.environ.update(ENVIRONMENT | os.environ)
    # Its JupyterLab neither asks whether to fetch news nor looks for updates: the book is at home without a network.
    paths = [str(ROOT / "tools" / "jupyter"), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(paths)
    token = secrets.token_hex(24)
    server = Server(config=settings(port, token))
    server.initialize(argv=[], find_extensions=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop(from_signal=True))
    address = f"http://127.0.0.1:{port}/?token={token}"
    server.io_loop.add_callback(print, f"The book is at {address} (Ctrl+C stops)", flush=True)  # once it listens
    server.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
