"""A real HTTP server on the loopback that answers as a test tells it, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request: headers have names in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """
    What the server does: answers, or stays silent until the end of the test, or answers a byte at a time.

    Attributes:
        drip: sends a byte of the body each 50 ms, for ever.
        silent: reads the request and says nothing.
        cut: announces a longer body than it sends, and hangs up.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    drip: bool = False
    cut: bool = False


@dataclass
class HttpServer:
    """
    The server.

    Attributes:
        url: where it is, without a path.
        answer: told of each request, says what to do.
        asked: the requests so far.
    """

    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked]
    arrived: threading.Event


@contextmanager
def serving(answer: Callable[[Asked], Answer] | None = None) -> Iterator[HttpServer]:
    """Run a server for the length of a block; whatever hangs then is let go."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            wanted = served.answer(asked)
            served.asked.append(asked)
            served.arrived.set()
            with suppress(OSError):
                self._answer(wanted)

        do_GET = do_POST  # noqa: N815 - the library's name

        def _answer(self, wanted: Answer) -> None:
            if wanted.silent:
                over.wait()
                self.close_connection = True
                return
            self.send_response(wanted.status)
            length = 1 << 20 if wanted.drip or wanted.cut else len(wanted.body)
            for name, value in {"content-length": str(length), **wanted.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(wanted.body)
            while wanted.drip and not over.wait(0.05):
                self.wfile.write(b" ")
            if wanted.drip or wanted.cut:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Keep the test's output clean."""

    class Server(ThreadingHTTPServer):
        # As many as may knock at once: others would be told to wait by the kernel.
        request_queue_size = 128

    httpd = Server(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = False
    served = HttpServer(
        f"http://127.0.0.1:{httpd.server_address[1]}", answer or (lambda _: Answer()), [], threading.Event()
    )
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        over.set()
        httpd.shutdown()
        thread.join()
        httpd.server_close()
