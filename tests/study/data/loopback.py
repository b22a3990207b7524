"""A web server on the loopback interface that misbehaves as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """What a client asked for."""

    path: str
    range: str | None
    if_range: str | None


Answer = Callable[[BaseHTTPRequestHandler, int], None]


class Site:
    """Paths and their answers; remembers every request."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.url = ""
        self._lock = threading.Lock()

    def count(self, request: Request) -> int:
        """Remember a request; return how many of its path came before."""
        with self._lock:
            before = sum(earlier.path == request.path for earlier in self.requests)
            self.requests.append(request)
        return before


@contextmanager
def serve() -> Iterator[Site]:
    """Serve a site on a free port of 127.0.0.1 until the block ends."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            get = self.headers.get
            before = site.count(Request(self.path, get("Range"), get("If-Range")))
            site.answers.get(self.path, status(404))(self, before)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status(code: int) -> Answer:
    """Answer with a bare status."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def content(body: bytes, etag: str | None = '"v1"', ranges: bool = True) -> Answer:
    """Serve a file, by ranges where asked and allowed (If-Range respected)."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        wanted, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
        start = 0
        if ranges and wanted and (condition is None or condition == etag):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            handler.send_response(200)
        if etag:
            handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body[start:])

    return answer


def cut(body: bytes, after: int, etag: str = '"v1"') -> Answer:
    """Announce the whole body, send a part, close the connection."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        handler.send_response(200)
        handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:after])
        handler.wfile.flush()
        handler.close_connection = True

    return answer


def stall(body: bytes, after: int, release: threading.Event) -> Answer:
    """Send a part, then nothing until released."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:after])
        handler.wfile.flush()
        release.wait(20)

    return answer


def redirect(target: str) -> Answer:
    """Send the client elsewhere."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Answer the first request by the first, the second by the second, ...; then by the last."""

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        answers[min(before, len(answers) - 1)](handler, before)

    return answer
