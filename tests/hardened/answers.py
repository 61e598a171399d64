"""Hostile answers of a web server: real answers with bytes flipped, cut, doubled or moved, and then silence or the end."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import sys
import threading
from collections.abc import Iterator

from eureka.data.dataset import UnavailableError
from eureka.data.download import Wanted, download
from tests.curves.fuzzing import MUTATIONS
from tests.hardened.attack import Attack

BODY = b"0123456789" * 50
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + BODY,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f4;x=y\r\n" + BODY + b"\r\n0\r\nTrailer: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(BODY),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + BODY,
    b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n",
    b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
]
PATIENCE = 0.3


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, list[bytes]]]:
    """A server on the loopback that answers with what the list holds, and closes."""
    answers, ended = [b""], threading.Event()

    def serve(listening: socket.socket) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(2.0)
                    connection.recv(4096)
                    connection.sendall(answers[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/file", answers
        ended.set()
        thread.join(timeout=10)


def hostile_answers(count: int, seed: int) -> Iterator[tuple[str, Attack]]:
    """So many attacks."""
    rng = random.Random(seed)
    with serving() as (url, answers):
        for number in range(count):
            mutate = rng.choice(MUTATIONS)
            answers[0] = mutate(rng.choice(ANSWERS), rng)[:2_000_000]
            yield f"{number}: {mutate.__name__} {answers[0][:200]!r}", lambda: _download(url)


def _download(url: str) -> int:
    try:
        body = download(Wanted(url=url, name="file", size=len(BODY), patience=PATIENCE, tell=lambda done, total: None))
        assert len(body) <= len(BODY) + (1 << 16)
    except (UnavailableError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
