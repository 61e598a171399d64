"""Any web server that holds the files as ``<address>/<data set>/<file>``, plain or gzipped; the address is the user's."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from eureka.data.dataset import Contents, DataSet, File, UnavailableError, unpacked
from eureka.data.sources.source import Tell

CHUNK = 1 << 16
SLOWEST = 1024  # bytes a second; a server that trickles is given up, one that only starts late is not


@dataclass(frozen=True)
class Http:
    """Files below one address."""

    address: str | None
    patience: float = 30.0
    """seconds without an answer, or over which less than a kilobyte a second came, until it is given up"""
    name: str = "HTTP"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if self.address is None:
            raise UnavailableError("no address was given (--url or EUREKA_DATA_URL)")
        if not self.address.startswith(("http://", "https://")):
            raise UnavailableError(f"{self.address!r} is no http address")
        return {file.name: self._file(f"{self.address.rstrip('/')}/{dataset.name}", file, tell) for file in dataset.files}

    def _file(self, folder: str, file: File, tell: Tell) -> bytes:
        try:
            return self._download(f"{folder}/{file.name}", file, tell)
        except FileNotFoundError:
            pass
        try:
            return unpacked(f"{file.name}.gz", self._download(f"{folder}/{file.name}.gz", file, tell))
        except FileNotFoundError:
            raise UnavailableError(f"{folder}/{file.name} is not there (404)") from None

    def _download(self, url: str, file: File, tell: Tell) -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=self.patience) as response:
                return self._body(response, file, tell)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(url) from None
            raise UnavailableError(f"{url} answered {error.code}") from None
        except TimeoutError:
            raise UnavailableError(f"{url} sent nothing for {self.patience:g} s") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UnavailableError(f"{url} cannot be had ({getattr(error, 'reason', error)})") from None

    def _body(self, response: http.client.HTTPResponse, file: File, tell: Tell) -> bytes:
        body, total, since, had = bytearray(), response.length, time.monotonic(), 0
        while chunk := response.read1(CHUNK):
            body += chunk
            tell(f"downloading {file.name}", len(body), total)
            if len(body) > file.size + CHUNK:
                raise UnavailableError(f"{file.name} is longer than its {file.size:,} bytes")
            if time.monotonic() - since > self.patience:
                if len(body) - had < SLOWEST * self.patience:
                    raise UnavailableError(f"{file.name} came too slowly ({len(body) - had:,} bytes in {self.patience:g} s)")
                since, had = time.monotonic(), len(body)
        if total is not None and len(body) != total:
            raise UnavailableError(f"{file.name} broke off after {len(body):,} of {total:,} bytes")
        return bytes(body)
