"""Show the built book at http://127.0.0.1:PORT. Opened as a file, its search does not work."""

import functools
import http.server
import sys
from pathlib import Path

HTML = Path(__file__).resolve().parent.parent / "_build" / "html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A handler that does not write a line for every request."""

    def log_message(self, *args):
        """Say nothing."""


def make_server(port, folder=HTML):
    """Return a server of `folder` on this machine only; port 0 takes a free one. Raises OSError if it is taken."""
    handler = functools.partial(Quiet, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(argv):
    """Serve until Ctrl+C; return the exit status."""
    port = argv[0] if argv else "8000"
    if not (port.isdecimal() and int(port) < 65536):
        print(f"PORT must be a number from 0 to 65535, got {port}", file=sys.stderr)
        return 1
    try:
        server = make_server(int(port))
    except OSError as error:
        print(f"can't serve at port {port}: {error.strerror}; choose another: make serve PORT=...", file=sys.stderr)
        return 1
    print(f"The book is at http://127.0.0.1:{server.server_port} (Ctrl+C stops)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
