"""A real HTTP server on 127.0.0.1 whose first path component says how it behaves: ``http://…/cut/name``."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<html>log in first</html>"


class FileServer(ThreadingHTTPServer):
    """Serves `files` (name -> bytes); `requests` lists (behaviour, name, Range header or None) as they came."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.requests = files, []
        self.arrived, self.release, self.hung_up = (threading.Event() for _ in range(3))

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.release.set()
        self.shutdown()
        self.server_close()

    def mirror(self, behaviour):
        return f"http://127.0.0.1:{self.server_port}/{behaviour}/"

    def seen(self):
        return [(behaviour, wanted) for behaviour, _, wanted in self.requests]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        behaviour, name = self.path.strip("/").split("/")
        wanted = self.headers["Range"]
        self.server.requests.append((behaviour, name, wanted))
        self.body = self.server.files.get(name, b"")
        self.start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0
        getattr(self, f"_{behaviour}")()

    def _good(self):
        self._begin()
        self.wfile.write(self.body[self.start :])

    def _ignores_range(self):
        self.start = 0
        self._good()

    def _cut(self):
        self._begin()
        self.wfile.write(self.body[self.start : (self.start + len(self.body)) // 2])

    def _corrupt(self):
        self.body = bytes(255 - b for b in self.body)
        self._good()

    def _missing(self):
        self.send_error(404)

    def _refuses_range(self):
        self.send_error(416) if self.start else self._good()

    def _other_range(self):
        if not self.start:
            return self._good()
        self._begin(shift=1)
        self.wfile.write(self.body[self.start - 1 : -1])

    def _page(self):
        self.body, self.start = PAGE, 0
        self._good()

    def _endless(self):  # no Content-Length, and a hundred times the file
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(self.body)
        except ConnectionError:
            self.server.hung_up.set()

    def _unsized(self):  # no Content-Length, the file
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def _stall(self):
        self._begin()
        self._half_then_wait()

    def _slow(self):
        self._begin()
        self._half_then_wait()
        self.wfile.write(self.body[len(self.body) // 2 :])

    def _half_then_wait(self):
        self.wfile.write(self.body[: len(self.body) // 2])
        self.wfile.flush()
        self.server.arrived.set()
        self.server.release.wait(60)

    def _begin(self, shift=0):
        size = len(self.body)
        self.send_response(206 if self.start else 200)
        if self.start:
            self.send_header("Content-Range", f"bytes {self.start - shift}-{size - 1 - shift}/{size}")
        self.send_header("Content-Length", str(size - self.start))
        self.end_headers()

    def log_message(self, *args):
        pass
