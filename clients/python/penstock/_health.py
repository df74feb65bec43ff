"""The health of a worker over HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Tuple

from .exceptions import ConfigurationError


class Server:
    def __init__(self, server: ThreadingHTTPServer, thread: threading.Thread) -> None:
        self._server, self._thread = server, thread
        self.address = server.server_address

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


def serve(address: str, healthy: Callable[[], Tuple[bool, Dict[str, Any]]]) -> Server:
    """Answer GET /healthz on ``host:port``: 200, or 503 where a queue was not asked in time."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"--health must be like 127.0.0.1:9100, not {address!r}")

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            found = self.path.split("?")[0] in ("/healthz", "/livez", "/")
            ok, shown = healthy() if found else (False, {"error": "there is /healthz"})
            body = json.dumps(shown).encode() + b"\n"
            self.send_response(404 if not found else 200 if ok else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except OSError as error:
        raise ConfigurationError(f"--health {address}: {error.strerror}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="penstock-health", daemon=True)
    thread.start()
    return Server(server, thread)
