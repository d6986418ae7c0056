"""The explorer's server responds only to requests with its secret path and its own host name."""

from __future__ import annotations

import http.client
import importlib
import io
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from hloom.explorer.server import LIMITS, PageServer

CONTENT = b"<p>page</p>"


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("hloom.explorer.server")._Handler, "timeout", 0.3)
        patch.setattr(sys, "stderr", said)
        made = PageServer(CONTENT)
        yield made
        made.close()
    assert said.getvalue() == ""


def fetch(server: PageServer, path: str | None = None, **headers: str) -> tuple[int, bytes]:
    address = urlsplit(server.address)
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
    connection.putrequest("GET", path or address.path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    found = connection.getresponse()
    return found.status, found.read()


def raw(server: PageServer, request: bytes) -> bytes:
    """Response of the server to raw bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", urlsplit(server.address).port or 0), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_it_listens_on_the_loopback_address_under_a_path_that_nobody_can_guess(server: PageServer) -> None:
    address = urlsplit(server.address)
    assert address.hostname == "127.0.0.1" and re.fullmatch(r"/[\w-]{22}/", address.path)
    assert fetch(server) == (200, CONTENT)
    for path in ("/", address.path[:-1], address.path + "x", "/%2e/", "/favicon.ico"):
        assert fetch(server, path) == (404, b"")


def test_other_host_names_are_rejected(server: PageServer) -> None:
    """DNS rebinding: another site's name may resolve to this machine, but its pages must not read this one."""
    address = urlsplit(server.address)
    own = f"127.0.0.1:{address.port}"
    assert fetch(server, Host=own) == (200, CONTENT)
    for host in ("evil.example", f"evil.example:{address.port}", "127.0.0.1", f"{own}.evil.example", "", f"{own} x"):
        assert fetch(server, Host=host) == (403, b""), host
    path = address.path.encode()
    for request in (
        b"GET %s HTTP/1.0\r\n\r\n" % path,
        b"GET %s HTTP/1.1\r\nHost: %s\r\nHost: evil.example\r\n\r\n" % (path, own.encode()),
    ):
        assert b" 403 " in raw(server, request)


def post(server: PageServer, action: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    address = urlsplit(server.address)
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=60)
    given = {"Origin": f"http://{address.netloc}", **headers}
    connection.request("POST", address.path + action, body, {name: value for name, value in given.items() if value})
    found = connection.getresponse()
    return found.status, found.read()


def test_the_editor_serves_its_own_page_only(server: PageServer) -> None:
    """Pages of other sites may send requests to this machine, but not with this origin."""
    text = b"HloModule m\nENTRY e { ROOT x = f32[2] parameter(5) }"
    status, found = post(server, "check", text)
    assert status == 200 and b"problems" in found, found
    for origin in ("", "null", "http://evil.example", "http://127.0.0.1"):
        assert post(server, "check", text, Origin=origin) == (403, b""), origin
    assert post(server, "check", text, Host="evil.example")[0] == 403
    assert post(server, "open", text)[0] == 404
    assert post(server, "../check", text)[0] == 404


@pytest.mark.long
def test_the_editor_stops_programs_that_take_too_long(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "check", 1.0)
    endless = b"""HloModule m
body { ROOT i = s32[] parameter(0) }
condition { i = s32[] parameter(0) ROOT yes = pred[] constant(true) }
ENTRY e { zero = s32[] constant(0) ROOT loop = s32[] while(zero), condition=condition, body=body }"""
    status, found = post(server, "check", endless)
    assert status == 200 and b"took more than" in found, found


@pytest.mark.parametrize("length", ["", "x", "-1", "99999999999999999999", "\u0661"])
def test_lengths_that_are_none_or_too_large_are_rejected(length: str, server: PageServer) -> None:
    address = urlsplit(server.address)
    head = f"POST {address.path}check HTTP/1.1\r\nHost: {address.netloc}\r\nOrigin: http://{address.netloc}\r\n"
    said = raw(server, f"{head}Content-Length: {length}\r\n\r\n".encode())
    assert b" 413 " in said, said


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n", b"\x00" * 100 + b"\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", b"GET\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n",
        b"GET " + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n: :\r\n\r\n", b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: \xff\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=lambda request: repr(request[:30]),
)  # fmt: skip
def test_invalid_requests_get_an_error_and_no_traceback(request_bytes: bytes, server: PageServer) -> None:
    head, _, body = raw(server, request_bytes).partition(b"\r\n\r\n")
    assert b" 200 " not in head and CONTENT not in body and b"<script>" not in body
    assert fetch(server) == (200, CONTENT)


def test_disconnected_clients_leave_no_traceback(server: PageServer) -> None:
    address = ("127.0.0.1", urlsplit(server.address).port or 0)
    for request in (b"", b"GET ", b"GET / HTTP/1.1\r\n"):
        connection = socket.create_connection(address)
        connection.sendall(request)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()  # at once, with a reset
    assert fetch(server) == (200, CONTENT)


@pytest.mark.parametrize("request_bytes", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_idle_clients_are_disconnected(request_bytes: bytes, server: PageServer) -> None:
    before = threading.active_count()
    assert raw(server, request_bytes) == b""
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_no_other_page_may_frame_it_or_guess_its_type(server: PageServer) -> None:
    host = urlsplit(server.address).netloc.encode()
    path = urlsplit(server.address).path.encode()
    said = raw(server, b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, host))
    for header in (b"frame-ancestors 'none'", b"nosniff", b"no-store", b"no-referrer"):
        assert header in said
