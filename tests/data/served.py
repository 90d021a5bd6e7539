"""A real HTTP server on 127.0.0.1 whose first path component says how it behaves: ``http://…/cut/name``."""

import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def idx(values, code=0x08):
    """Return the bytes of an IDX file that holds a tensor."""
    header = struct.pack(">BBBB", 0, 0, code, values.dim()) + struct.pack(f">{values.dim()}I", *values.shape)
    return header + bytes(values.flatten().tolist())


class FileServer(ThreadingHTTPServer):
    """Serves `files` (name -> bytes); `requests` lists (behaviour, name) as they came."""

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
        return [behaviour for behaviour, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        behaviour, name = self.path.strip("/").split("/")
        self.server.requests.append((behaviour, name))
        body = self.server.files.get(name, b"")
        try:
            getattr(self, f"_{behaviour}")(body)
        except ConnectionError:
            self.server.hung_up.set()

    def _good(self, body):
        self._begin(len(body))
        self.wfile.write(body)

    def _cut(self, body):
        self._begin(len(body))
        self.wfile.write(body[: len(body) // 2])

    def _corrupt(self, body):
        self._good(bytes(255 - b for b in body))

    def _missing(self, body):
        self.send_error(404)

    def _endless(self, body):
        self._begin()
        for _ in range(100):
            self.wfile.write(body)

    def _slow(self, body):
        """Send half, and the rest when the test says so."""
        self._begin(len(body))
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        self.server.arrived.set()
        self.server.release.wait(60)
        self.wfile.write(body[len(body) // 2 :])

    def _drip(self, body):
        """Send a byte now and then, so that no single wait is long."""
        self._begin(len(body))
        for i in range(200):  # 10 s
            self.wfile.write(body[i : i + 1])
            self.wfile.flush()
            if self.server.release.wait(0.05):
                return

    def _dribble(self, body):
        """Send headers without end, so that no body ever begins."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not self.server.release.wait(0.05):
            self.wfile.write(b"x")

    def _astray(self, body):
        self.send_response(302)
        self.send_header("Location", "http://[::1/")
        self.end_headers()

    def _begin(self, size=None):
        self.send_response(200)
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, *args):
        pass
