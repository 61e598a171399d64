"""A corpus of the user's own: a text file, or a folder of them. A config names it by its path and a digest of its content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from eureka.errors import RequestError

LARGEST = 500_000_000
"""Bytes of a corpus; it is encoded in memory."""
FEWEST, PIECES = 10, 100
"""A folder of fewer files, or one file, is cut into so many pieces."""
PINNED = re.compile(r"(?P<path>.+)@(?P<digest>[0-9a-f]{16})")


def pinned(corpus: str) -> str:
    """The path with a digest of what is there now: a text that has changed is another corpus, and another run."""
    if PINNED.fullmatch(corpus):
        return corpus
    path = Path(corpus).expanduser().absolute()
    return f"{path}@{_digest(_read(path))}"


def own_documents(corpus: str) -> list[str]:
    """The documents of a pinned corpus: the files of a folder, or pieces of a file, cut at the ends of lines."""
    found = PINNED.fullmatch(corpus)
    assert found is not None
    path = Path(found["path"])
    files = _read(path)
    if (now := _digest(files)) != found["digest"]:
        raise RequestError(f"{path} has changed since this run was planned (its digest was {found['digest']} and is {now}).")
    texts = [_text(file, content) for file, content in files.items()]
    return texts if len(texts) >= FEWEST else _pieces("\n".join(texts), path)


def _read(path: Path) -> dict[Path, bytes]:
    """The bytes of a file, or of the text files below a folder, by their names."""
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise RequestError(f"the folder {path} holds no .txt file.")
    if not path.exists():
        raise RequestError(f"there is no corpus {path}; name a text file, a folder of .txt files, or sotu, moby_dick, bible.")
    for file in files:
        if not file.is_file():
            raise RequestError(f"{file} is no regular file; a corpus is text in files.")
    if (size := sum(file.stat().st_size for file in files)) > LARGEST:
        raise RequestError(f"{path} has {size / 1e6:,.0f} MB; a corpus of up to {LARGEST / 1e6:,.0f} MB is encoded in memory.")
    try:
        return {file: file.read_bytes() for file in files}
    except OSError as error:
        raise RequestError(f"cannot read {error.filename}: {error.strerror}.") from None


def _digest(files: dict[Path, bytes]) -> str:
    whole = hashlib.sha256()
    for content in files.values():
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()[:16]


def _text(file: Path, content: bytes) -> str:
    if b"\0" in content:
        raise RequestError(f"{file} is no text: it holds zero bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x}"
        raise RequestError(f"{file} is not UTF-8: byte {byte} at {error.start:,}; convert it with iconv.") from None
    return text


def _pieces(text: str, path: Path) -> list[str]:
    """About a hundredth of the text each."""
    if not text.strip():
        raise RequestError(f"{path} is empty.")
    lines = text.splitlines(keepends=True)
    if len(lines) < PIECES:  # few long lines: cut at words
        lines = re.findall(r"\S+\s*", text)
    size, pieces, piece, length = len(text) / PIECES, list[str](), list[str](), 0
    for line in lines:
        piece.append(line)
        length += len(line)
        if length >= size * (len(pieces) + 1):
            pieces.append("".join(piece))
            piece = []
    if piece:
        pieces.append("".join(piece))
    if len(pieces) < FEWEST:
        raise RequestError(f"{path} is too short: it has {len(lines)} words, and a tenth of it is held out.")
    return pieces
