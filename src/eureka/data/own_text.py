"""A corpus of the user's own: a text file, or a folder of them. A config names it by its path and a digest of its content."""

from __future__ import annotations

import codecs
import hashlib
import re
import shlex
from pathlib import Path

from eureka.errors import RequestError
from eureka.formats import listing, plural

LARGEST = 500_000_000
"""Bytes of a corpus; it is encoded in memory."""
FEWEST, PIECES = 10, 100
"""A folder of fewer files, or one file, is cut into so many pieces."""
HELD_OUT_EVERY = 10
FAIR, USABLE = (0.01, 0.5), (0.001, 0.9)
"""Shares of the text that every tenth file may be, and every tenth piece. Beyond them a text is cut otherwise, and the splits of
texts that could be trained on stay as they are."""
ENOUGH = 10_000
"""Characters that may be held out, whatever their share."""
LEAST = 1_000
"""Characters. So many of Moby Dick give a vocabulary of 300, and a tenth of them holds an input of 64 tokens."""
MARKS = ".!?…。！？｡．"
"""What ends a sentence, also where no space follows."""
WIDE = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}
"""Byte-order marks; that of UTF-32 begins with that of UTF-16."""
PINNED = re.compile(r"(?P<path>.+)@(?P<digest>[0-9a-f]{16})")


def pinned(corpus: str) -> str:
    """The path with a digest of what is there now: a text that has changed is another corpus, and another run."""
    if PINNED.fullmatch(corpus):
        return corpus
    path = Path(corpus).expanduser().absolute()
    return f"{path}@{_digest(_read(path))}"


def own_documents(corpus: str) -> list[str]:
    """The documents of a pinned corpus: the files of a folder, or pieces of a text where files are few or lopsided."""
    path, digest = _parts(corpus)
    files = _read(path)
    if (now := _digest(files)) != digest:
        raise RequestError(f"{path} has changed since this run was planned (its digest was {digest} and is {now}).")
    texts = [_text(file, content) for file, content in files.items()]
    full = [text for text in texts if text.strip()]
    if not full:
        raise RequestError(f"{path} is empty." if len(texts) == 1 else f"{path} is empty: its {len(texts):,} files hold no text.")
    if len(texts) < FEWEST:
        return _pieces("\n".join(texts), path)
    for documents in (texts, full):  # an empty file counts, so that the split of a folder that works stays as it is
        if _splits(documents, *FAIR):
            return documents
    return _pieces("\n".join(full), path)


def own_name(corpus: str) -> str | None:
    """What the file or the folder of a pinned corpus is called; None for a corpus that is not the user's own."""
    return Path(found["path"]).name if (found := PINNED.fullmatch(corpus)) else None


def left_out(corpus: str) -> str:
    """What is in the folder of a pinned corpus and gives no text, in a sentence; empty where there is no such thing."""
    path, _ = _parts(corpus)
    if not path.is_dir():
        return ""
    empty = [file for file, content in _read(path).items() if not _text(file, content).strip()]
    told = [_counted(empty, "empty file", "empty files"), _counted(_lost(path), "link to nowhere", "links to nowhere")]
    return f"Passed over: {listing([one for one in told if one])}." if any(told) else ""


def _counted(files: list[Path], one: str, many: str) -> str:
    names = [file.name for file in files]
    return f"{plural(len(files), one, many)} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if files else ""


def _lost(folder: Path) -> list[Path]:
    """Links to files that are not there."""
    return [file for file in sorted(folder.rglob("*.txt")) if not file.exists()]


def _parts(corpus: str) -> tuple[Path, str]:
    found = PINNED.fullmatch(corpus)
    assert found is not None
    return Path(found["path"]), found["digest"]


def _splits(documents: list[str], least: float, most: float) -> bool:
    """Whether there are enough documents to hold every tenth out, and these are neither too little of the text nor too much."""
    held_out, whole = (sum(map(len, some)) for some in (documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY], documents))
    return len(documents) >= FEWEST and min(least * whole, ENOUGH) <= held_out <= most * whole


def _read(path: Path) -> dict[Path, bytes]:
    """The bytes of a file, or of the text files below a folder, by their names."""
    if not path.exists():
        raise RequestError(f"there is no corpus {path}; name a text file, a folder of .txt files, or sotu, moby_dick, bible.")
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*.txt")) if file.exists() and not file.is_dir()]
    if not files:
        raise RequestError(f"the folder {path} holds no .txt file{', only links to nowhere' if _lost(path) else ''}.")
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
    if (wide := _wide(content)) is not None:
        command = f"iconv -f {wide} -t UTF-8 {shlex.quote(file.name)} > utf8.txt"
        raise RequestError(f"{file} is {wide}, not UTF-8; `{command}` converts it.")
    if b"\0" in content:
        raise RequestError(f"{file} is no text: it holds zero bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x}"
        raise RequestError(f"{file} is not UTF-8: byte {byte} at {error.start:,}; convert it with iconv.") from None
    return text


def _wide(content: bytes) -> str | None:
    """The encoding of a text in units of two or four bytes, by its byte-order mark or because every other byte is zero."""
    for name, marks in WIDE.items():
        if content.startswith(marks):
            return name
    ends = content[0::2], content[1::2]
    zeros = [half.count(0) / max(1, len(half)) for half in ends]
    if len(content) % 2 or max(zeros) < 0.5 or min(zeros) > 0:
        return None
    return "UTF-16BE" if zeros[0] > zeros[1] else "UTF-16LE"


def _pieces(text: str, path: Path) -> list[str]:
    """About a hundredth of the text each, cut at lines; where these are few or lopsided at words, and else within words."""
    lines = text.splitlines(keepends=True)
    if len(lines) >= PIECES and _splits(pieces := _gathered(lines, len(text)), *USABLE):
        return pieces
    if _splits(pieces := _gathered(re.findall(r"\S+\s*", text), len(text)), *USABLE):
        return pieces
    if len(text) < LEAST:
        raise RequestError(f"{path} is too short: it has {len(text):,} characters, and about {LEAST:,} are needed.")
    size, marks = len(text) // PIECES, re.escape(MARKS)
    return _gathered(re.findall(f"[^{marks}]{{0,{size}}}[{marks}]+|[^{marks}]{{1,{size}}}", text), len(text))


def _gathered(units: list[str], length: int) -> list[str]:
    """Lines or words, put together to pieces of about a hundredth of the length."""
    size, pieces, piece, done = length / PIECES, list[str](), list[str](), 0
    for unit in units:
        piece.append(unit)
        done += len(unit)
        if done >= size * (len(pieces) + 1):
            pieces.append("".join(piece))
            piece = []
    if piece:
        pieces.append("".join(piece))
    return pieces
