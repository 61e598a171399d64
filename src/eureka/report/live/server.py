"""Shows a study that is followed to who knows the token: three addresses, only to be read, and no file is served by its path.

/TOKEN/         the page
/TOKEN/state    how the study is doing, as JSON
/TOKEN/report   the page without its scripts, for a browser that has them
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eureka.errors import MissingExtraError, RequestError, WorkError
from eureka.report.live.study import LiveStudy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

TOKEN_BYTES = 24
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself says what its scripts may do
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
START_SECONDS = 10.0
"""How long the server may take to begin, and to end."""


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def application(study: LiveStudy, token: str) -> Starlette:
    """What answers requests. Whoever does not know the token learns nothing, not even which addresses there are."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    def answer(request: Request) -> Response:
        given, slash, name = request.path_params["path"].partition("/")
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("The token in the address is wrong or missing.\n", 403, HEADERS)
        if not slash:
            return RedirectResponse(f"/{token}/", headers=HEADERS)
        if name == "":
            return Response(study.document(whole=True), headers=HEADERS, media_type="text/html")
        if name == "state":
            return Response(json.dumps(study.state(), default=vars), headers=HEADERS, media_type="application/json")
        if name == "report":
            return Response(study.document(whole=False), headers=HEADERS, media_type="text/html")
        return PlainTextResponse("There is no such page.\n", 404, HEADERS)

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET"])])


def check_server() -> None:
    """Raise if the packages that serve pages are not installed."""
    for package in ("starlette", "uvicorn"):
        try:
            __import__(package)
        except ModuleNotFoundError:
            raise MissingExtraError(package, "watch") from None


@contextlib.contextmanager
def serve(study: LiveStudy, token: str, host: str, port: int) -> Iterator[str]:
    """Serve the study within ``with``; gives the address of the page. Port 0 is any that is free."""
    import uvicorn

    listening = _listen(host, port)
    config = uvicorn.Config(
        application(study, token),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # the token is in every address
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=64,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        _wait_for(server, thread)
        place, number = listening.getsockname()[:2]
        yield f"http://{f'[{place}]' if ':' in place else place}:{number}/{token}/"
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        listening.close()


def _wait_for(server: object, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not getattr(server, "started", False):
        if not thread.is_alive() or time.monotonic() > deadline:
            raise WorkError("the server did not begin.")
        time.sleep(0.01)


def _listen(host: str, port: int) -> socket.socket:
    try:
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with contextlib.ExitStack() as on_failure:
            listening = on_failure.enter_context(socket.socket(family, kind))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
            on_failure.pop_all()
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose others with --host and --port."
        ) from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address of that name.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
