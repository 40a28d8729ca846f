"""A stand-in for the supplier: orders have names, and every now and then it has no time for them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count


@contextmanager
def supplier() -> Iterator[tuple[str, dict[str, int]]]:
    """Its URL, on a free port, and what was ordered, by name. `PUT` orders once for each name; `GET` tells of it."""
    orders: dict[str, int] = {}
    numbers = count(1)

    class Desk(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # the headers and the body of an answer leave together

        def do_GET(self) -> None:
            given, number = self.rfile.read(int(self.headers.get("Content-Length", 0))), next(numbers)
            if number % 40 == 0:
                self.answer(HTTPStatus.SERVICE_UNAVAILABLE)
            elif number % 9 == 0:
                self.answer(HTTPStatus.TOO_MANY_REQUESTS)
            else:
                if self.command == "PUT":
                    orders.setdefault(self.path, json.loads(given)["qty"])
                self.answer(HTTPStatus.OK if self.path in orders else HTTPStatus.NOT_FOUND)

        do_PUT = do_GET  # noqa: N815 -- the name that http.server looks for

        def answer(self, status: HTTPStatus) -> None:
            body = json.dumps({"qty": orders.get(self.path)}).encode()
            self.send_response(status)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", orders
        server.shutdown()
