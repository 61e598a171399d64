"""Servers that are slow, endless or hostile: each is given up within the patience, and told by one sentence."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from eureka.data.dataset import UnavailableError
from eureka.data.download import Wanted, download

OK = b"HTTP/1.1 200 OK\r\n"
PATIENCE = 0.6
Speak = Callable[[socket.socket], None]


@contextlib.contextmanager
def speaking(speak: Speak) -> Iterator[str]:
    """A server on the loopback that answers every connection with the bytes that `speak` sends."""
    ended = threading.Event()

    def serve(listening: socket.socket) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    speak(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/file"
        ended.set()
        thread.join(timeout=10)


def dripping(start: bytes, drop: bytes, seconds: float = 4.0) -> Speak:
    def speak(connection: socket.socket) -> None:
        connection.sendall(start)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(drop)
            time.sleep(0.02)

    return speak


HOSTILE = {
    "silence": lambda connection: time.sleep(2.0),
    "headers without end": dripping(OK, b"X-More: yes\r\n"),
    "one header without end": dripping(OK + b"X-More: ", b"y"),
    "interim answers without end": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a chunk extension without end": dripping(OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=", b"y"),
    "a body that trickles": dripping(OK + b"Content-Length: 10000\r\n\r\n", b"z"),
    "a status line without end": dripping(b"HTTP/1.1 200 O", b"K"),
    "a redirection to itself": lambda c: c.sendall(b"HTTP/1.1 302 Found\r\nLocation: /file\r\nConnection: close\r\n\r\n"),
    "more bytes than announced to us": dripping(OK + b"\r\n", b"z" * 60_000),
    "a length that is none": lambda c: c.sendall(OK + b"Content-Length: many\r\n\r\nabc"),
    "no HTTP": lambda c: c.sendall(b"220 mail.example ESMTP\r\n"),
    "megabytes of headers": lambda c: c.sendall(OK + b"X: " + b"y" * 5_000_000 + b"\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_it_is_given_up_in_time_and_told(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with speaking(HOSTILE[case]) as url:
        begun = time.monotonic()
        with pytest.raises(UnavailableError):
            download(Wanted(url=url, name="file", size=10_000, patience=PATIENCE, tell=lambda done, total: None))
        assert time.monotonic() - begun < 30 * PATIENCE  # it would take for ever


def test_a_slow_server_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    body = b"z" * 20_000

    def speak(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: 20000\r\n\r\n")
        for start in range(0, len(body), 1_000):
            connection.sendall(body[start : start + 1_000])
            time.sleep(0.05)

    with speaking(speak) as url:
        assert download(Wanted(url=url, name="file", size=20_000, patience=PATIENCE, tell=lambda done, total: None)) == body


@pytest.mark.parametrize("url", ["http://[::1", "http://[::1]:99999/x", "http://", "http://\x00/x"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(UnavailableError, match="cannot be had"):
        download(Wanted(url=url, name="file", size=10, patience=1.0, tell=lambda done, total: None))
