"""The server of `eureka watch`: the token, the addresses, and what it never gives away."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

pytest.importorskip("uvicorn", reason="needs eureka[watch]")

from eureka.errors import RequestError
from eureka.report.live.server import new_token, serve
from eureka.report.live.study import LiveStudy

TRAVERSALS = [
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/passwd",
    "....//....//etc/passwd",
    "/etc/passwd",
    "..\\..\\etc\\passwd",
    "report/../../secret.txt",
    "config.json",
    "runs.csv",
    "state%00",
]

GARBAGE = [
    "GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
    "\x00\x01\r\n\r\n",
    "GET /" + "a" * 100_000 + " HTTP/1.1\r\n\r\n",
]


@pytest.fixture
def address(study: Path) -> Iterator[str]:
    (study.parent / "secret.txt").write_text("root:x:0:0")
    with serve(LiveStudy(study, "eureka watch study"), new_token(), "127.0.0.1", 0) as found:
        yield found


def raw(address: str, request: str) -> str:
    """What the server answers to a request that no client would put in order first."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")


def status(answer: str) -> int:
    return int(answer.split()[1])


def test_who_knows_the_token_sees_the_page_the_state_and_the_report(address: str) -> None:
    page, state, report = (httpx.get(address + name) for name in ("", "state", "report"))
    assert [one.status_code for one in (page, state, report)] == [200, 200, 200]
    assert "norm_softmax" in page.text
    assert state.json()["ended"] == 6
    assert "plotly" in page.text
    assert len(report.text) < len(page.text) / 10
    assert httpx.get(address.removesuffix("/"), follow_redirects=True).url == address


@pytest.mark.parametrize("token", ["", "wrong", "wrong/", "wrong/state", "state", "report", "%ff/", "wrong/../{token}/x"])
def test_a_wrong_token_or_none_is_forbidden(address: str, token: str) -> None:
    base, known = address.rsplit("/", 2)[:2]
    target = urlsplit(f"{base}/{token.format(token=known[:-1])}").path or "/"
    answer = raw(address, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert status(answer) == 403
    assert "norm_softmax" not in answer


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_to_a_file(address: str, path: str) -> None:
    answer = raw(address, f"GET {urlsplit(address).path}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert status(answer) in (400, 403, 404)
    assert "root:" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_done_but_read(address: str, method: str) -> None:
    assert httpx.request(method, address).status_code == 405


def test_answers_are_not_kept_not_framed_and_not_referred_to(address: str) -> None:
    for name in ("", "state", "report", "nothing", "../wrong"):
        headers = httpx.get(address + name).headers
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_the_page_may_ask_its_own_server_and_no_other(address: str, parse: Any) -> None:
    page = parse(httpx.get(address).text)
    [rules] = [a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert "connect-src 'self';" in rules
    assert "http" not in rules


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize(
    "garbage", ["GET / HTTP/9.9\r\nConnection: close\r\n\r\n", "\x00\x01\r\n\r\n", "GET /" + "a" * 100_000 + " HTTP/1.1\r\n\r\n"]
)
def test_garbage_does_not_stop_it(address: str, garbage: str) -> None:
    raw(address, garbage)
    assert httpx.get(address + "state").status_code == 200


def test_a_port_that_is_taken_is_one_sentence(study: Path, address: str) -> None:
    port = urlsplit(address).port or 0
    with pytest.raises(RequestError, match=rf"cannot listen on 127\.0\.0\.1, port {port}: Address already in use; choose"):
        serve(LiveStudy(study, "title"), new_token(), "127.0.0.1", port).__enter__()


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "eureka", "watch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_an_address_of_this_machine_and_ends_in_one_line(study: Path, signum: signal.Signals) -> None:
    process = start(str(study))
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
    with httpx.Client() as client:  # a browser keeps its connection
        assert client.get(address + "state").json()["runs"] == 6
        process.send_signal(signum)
        _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (0, f"eureka: no longer watching {study}; the runs go on.\n")


def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    process = start(str(tmp_path / "nowhere"))
    out, told = process.communicate(timeout=60)
    assert (process.returncode, out, told) == (2, "", f"eureka: {tmp_path / 'nowhere'} is not a folder.\n")


def test_watching_needs_no_torch(study: Path) -> None:
    code = (
        "import sys, pathlib; from eureka.report.live.server import application; from eureka.report.live.study import LiveStudy;"
        f"LiveStudy(pathlib.Path({str(study)!r}), 'title').document(whole=True); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_without_its_packages_it_says_what_to_install(study: Path, tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "eureka", "watch", str(study)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2
    assert re.fullmatch(r"eureka: this needs the package 'uvicorn': pip install '[\w-]+\[watch\]'\n", done.stderr)
