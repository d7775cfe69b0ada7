"""A loopback HTTP server of objects in memory that misbehaves on request.

Faults are given per path, one for each request to come; without one, a request is answered well.
Every fault that was really injected is counted.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import attrs


@attrs.frozen(kw_only=True)
class Fault:
    """A misbehaviour instead of a right answer.

    Attributes:
      kind: name in the count.
      status: answer with this status and no object.
      headers: with these headers.
      cut_at: end the connection after this share of the requested bytes.
      content: send this instead of the object.
      announce_extra: announce more bytes (or fewer) than there are.
      garbage: send this after the body, on the same connection.
      hang_s: send nothing for this long before the answer.
      stall_at: send nothing for `hang_s` after this share of the body, not before the answer.
      drip_s: send bytes one by one, this long apart.
      drip_head: send the header in the same way.
      ignore_range: send all of it, with status 200.
      wrong_range: send another range than the one asked for.
      chunked: send in chunks, without the total length.
    """

    kind: str
    status: int | None = None
    headers: dict[str, str] = attrs.field(factory=dict)
    cut_at: float | None = None
    content: bytes | None = None
    announce_extra: int = 0
    garbage: bytes = b""
    hang_s: float = 0.0
    stall_at: float | None = None
    drip_s: float = 0.0
    drip_head: bool = False
    ignore_range: bool = False
    wrong_range: bool = False
    chunked: bool = False


def flipped(content: bytes, bit: int) -> bytes:
    """Content with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


class FaultServer(ThreadingHTTPServer):
    """Serves `objects`; `faults[path]` are worked off first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.always: dict[str, Fault] = {}
        self.injected: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        self.connections = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, path: str, content: bytes) -> None:
        self.objects[f"/{path}"] = content

    def inject(self, path: str, *faults: Fault) -> None:
        self.faults[f"/{path}"].extend(faults)

    def take(self, path: str, method: str, asked: str) -> Fault | None:
        with self.lock:
            self.requests.append((path, asked))
            fault = self.faults[path].popleft() if self.faults[path] else self.always.get(path)
            if fault is not None:
                self.injected[fault.kind] += 1
            return fault

    def wait(self, seconds: float) -> None:
        """Waits, but not beyond the end of the server."""
        self.closing.wait(seconds)

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing, since tests make clients disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = self.headers.get("Range", "")
        fault = self.server.take(path, self.command, asked) or Fault(kind="none")
        if fault.hang_s and fault.stall_at is None:
            self.server.wait(fault.hang_s)
        content = self.server.objects.get(path) if fault.content is None else fault.content
        if fault.status is not None or content is None:
            self._status(fault.status or 404, fault.headers)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start >= len(content) > 0:
            self._status(416, {})
            return
        if fault.ignore_range:
            start = 0
        if fault.wrong_range:
            start += 1
        sent = content[start:]
        head = [f"HTTP/1.1 {206 if start else 200} OK"]
        if start:
            head.append(f"Content-Range: bytes {start}-{len(content) - 1}/{len(content)}")
        if fault.chunked:
            head.append("Transfer-Encoding: chunked")
            sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(sent), sent)
        else:
            head.append(f"Content-Length: {len(sent) + fault.announce_extra}")
        head += [f"{name}: {value}" for name, value in fault.headers.items()]
        self._send("\r\n".join([*head, "", ""]).encode(), fault if fault.drip_head else None)
        if body:
            self._body(sent, fault)

    def _body(self, content: bytes, fault: Fault) -> None:
        share = fault.stall_at if fault.stall_at is not None else fault.cut_at
        if share is not None:
            self._send(content[: int(len(content) * share)], fault)
            if fault.stall_at is not None:
                self.server.wait(fault.hang_s)
            self.close_connection = True
            return
        self._send(content + fault.garbage, fault)
        if fault.announce_extra > 0:
            self.close_connection = True

    def _send(self, content: bytes, fault: Fault | None) -> None:
        if fault is None or not fault.drip_s:
            self.wfile.write(content)
            return
        for index in range(len(content)):
            self.wfile.write(content[index : index + 1])
            self.wfile.flush()
            if self.server.closing.is_set():
                return
            time.sleep(fault.drip_s)

    def _status(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def fault_server() -> Iterator[FaultServer]:
    """Runs a server in a thread."""
    server = FaultServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
