"""Google Cloud Storage on loopback: the emulator of PyPI behind a proxy that adds what it lacks.

The emulator (gcp-storage-emulator) ignores preconditions: it overwrites where the service answers
412. The proxy answers 412 to an upload with `ifGenerationMatch=0` when the object exists: when a
resumable session is begun, and when the last piece arrives, as the service does. It can also
inject faults. Both run in threads of the tests.
"""

import json
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, urlsplit

import attrs
from gcp_storage_emulator.server import create_server

BUCKET = "artifacts"


@attrs.frozen
class ProxyFault:
    """The answer instead of forwarding: a status, or a connection that ends.

    With `after`, the request is passed on first, and only its answer is lost. With `hang_s`,
    nothing comes for so long before that.
    """

    status: int | None = None
    after: bool = False
    hang_s: float = 0.0


class Proxy(ThreadingHTTPServer):
    """Passes requests on; `faults` are worked off by requests whose line matches."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.faults: deque[tuple[str, ProxyFault]] = deque()
        self.requests: list[str] = []
        self.answers: Counter[int] = Counter()
        self.injected: Counter[str] = Counter()
        self.sessions: dict[str, str] = {}
        # One request at a time, because check and write must be atomic.
        self.lock = threading.RLock()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def inject(self, pattern: str, *faults: ProxyFault) -> None:
        self.faults.extend((pattern, fault) for fault in faults)

    def fault_for(self, line: str) -> ProxyFault | None:
        with self.lock:
            self.requests.append(line)
            for index, (pattern, fault) in enumerate(self.faults):
                if re.search(pattern, line):
                    del self.faults[index]
                    kind = "hang" if fault.hang_s else "connection cut"
                    self.injected[str(fault.status or kind)] += 1
                    return fault
        return None

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing if clients disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_PUT(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        self._pass_on()

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault_for(f"{self.command} {self.path}")
        if fault is not None and not fault.after:
            self._fail(fault)
            return
        with self.server.lock:
            if self._is_taken(body):
                self._answer(412, {}, json.dumps({"error": {"code": 412, "message": "x"}}).encode())
                return
            status, headers, content = self._ask(self.command, self.path, body, dict(self.headers))
            if upload := parse_qs(urlsplit(headers.get("Location", "")).query).get("upload_id"):
                self.server.sessions[upload[0]] = self._object(body)
        if fault is not None:
            self._fail(fault)
            return
        self._answer(status, headers, content)

    def _is_taken(self, body: bytes) -> bool:
        """Whether a request begins or finishes an upload that must not replace an object."""
        query = parse_qs(urlsplit(self.path).query)
        if not urlsplit(self.path).path.startswith("/upload/"):
            return False
        if query.get("ifGenerationMatch") != ["0"]:
            return False
        if "upload_id" in query:
            sent = re.fullmatch(r"bytes \d+-(\d+)/(\d+)", self.headers.get("Content-Range", ""))
            if sent is None or int(sent[1]) + 1 < int(sent[2]):
                return False
            name = self.server.sessions[query["upload_id"][0]]
        else:
            name = self._object(body)
        path = f"/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}"
        return self._ask("GET", path, b"", {})[0] == 200

    def _object(self, body: bytes) -> str:
        query = parse_qs(urlsplit(self.path).query)
        if "name" in query:
            return query["name"][0]
        # The name is in the JSON document, which in a multipart body comes first.
        found = re.search(rb'"name": ("[^"]+")', body)
        assert found is not None, body[:200]
        return str(json.loads(found[1]))

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.behind, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        with self.server.lock:
            self.server.answers[status] += 1
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("server", "date", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _fail(self, fault: ProxyFault) -> None:
        if fault.hang_s:
            self.server.closing.wait(fault.hang_s)
        if fault.status is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(fault.status, {}, b"")


@contextmanager
def gcs_emulator() -> Iterator[Proxy]:
    """Runs emulator and proxy with one empty bucket."""
    # It binds to a port that is free: one that was looked for before may be taken by then, and
    # `start` would wait for ever.
    emulator = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    emulator.start()
    proxy = Proxy(emulator._api._httpd.server_port)  # it has no other name
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        emulator.stop()
