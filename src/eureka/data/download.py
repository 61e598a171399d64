"""Download one file from a server that may be slow, endless or hostile: within a patience, and no more bytes than are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from eureka.data.dataset import UnavailableError

SLOWEST = 1024
"""Bytes a second; a slower server is given up."""
SLACK = 1 << 16
"""Bytes beyond those that are wanted before a file is too long."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for."""

    url: str
    name: str
    """what messages call it"""
    size: int
    """bytes of the file, at most"""
    patience: float
    """In so many seconds the whole body must come, or `SLOWEST` bytes of it for each second; then it counts anew. Redirections,
    headers, interim answers and chunk extensions are no body, so they cannot make anybody wait longer."""
    tell: Callable[[int, int | None], None]
    """called with the bytes so far and, if the server says so, in all"""


def download(wanted: Wanted) -> bytes:
    """The body; FileNotFoundError if the server has no such file, `UnavailableError` with the reason otherwise."""
    body = bytearray()
    try:
        if (httpx.URL(wanted.url).port or 0) >= 1 << 16:
            raise ValueError("no such port")
        return asyncio.run(_fetch(wanted, body))
    except TimeoutError:
        if body:
            raise UnavailableError(f"{wanted.name} came too slowly ({len(body):,} bytes so far)") from None
        raise UnavailableError(f"{wanted.url} sent nothing for {wanted.patience:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise UnavailableError(f"{wanted.url} cannot be had ({error or type(error).__name__})") from None


async def _fetch(wanted: Wanted, body: bytearray) -> bytes:
    async with asyncio.timeout(wanted.patience) as limit:
        plain = {"Accept-Encoding": "identity"}
        async with (
            httpx.AsyncClient(follow_redirects=True, max_redirects=5, timeout=None) as client,
            client.stream("GET", wanted.url, headers=plain) as response,
        ):
            if response.status_code == 404:
                raise FileNotFoundError(wanted.url)
            if response.status_code != 200:
                raise UnavailableError(f"{wanted.url} answered {response.status_code}")
            await _receive(wanted, response, body, limit)
    return bytes(body)


async def _receive(wanted: Wanted, response: httpx.Response, body: bytearray, limit: asyncio.Timeout) -> None:
    total = int(response.headers["Content-Length"]) if "Content-Length" in response.headers else None
    loop, had = asyncio.get_running_loop(), 0
    try:
        async for chunk in response.aiter_raw():
            body += chunk
            wanted.tell(len(body), total)
            if len(body) > wanted.size + SLACK:
                raise UnavailableError(f"{wanted.name} is longer than its {wanted.size:,} bytes")
            if len(body) - had >= SLOWEST * wanted.patience:
                had = len(body)
                limit.reschedule(loop.time() + wanted.patience)
    except httpx.RemoteProtocolError:
        if total is None:
            raise
        raise UnavailableError(f"{wanted.name} broke off after {len(body):,} of {total:,} bytes") from None
