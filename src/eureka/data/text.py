"""Corpora: their documents, and their byte-pair encoding, which is learned from the training documents and cached."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eureka.data.catalogue import BIBLE, MOBY_DICK, SOTU
from eureka.data.own_text import HELD_OUT_EVERY, LEAST, own_documents, pinned
from eureka.data.store import cache_folder, keep, read
from eureka.errors import MissingExtraError, RequestError, UnknownNameError, WorkError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CORPORA = {dataset.name: dataset for dataset in (SOTU, MOBY_DICK, BIBLE)}
MASK = "[MASK]"
LEAST_VOCABULARY = 300
"""The mask, 256 bytes, and some pairs."""


def named_corpus(corpus: str) -> str:
    """A corpus as configs name it: one of ours, or a path with a digest of what is there."""
    if corpus in CORPORA:
        return corpus
    if not corpus.strip():
        raise RequestError(f"task.corpus is empty; name a text file, a folder of .txt files, or {', '.join(CORPORA)}.")
    if not any(sign in corpus for sign in "/\\.~@") and not Path(corpus).exists():
        raise UnknownNameError("corpus", corpus, [*CORPORA, "the path of a text file or of a folder"])
    return pinned(corpus)


def is_own(corpus: str) -> bool:
    """Whether it is the user's."""
    return corpus not in CORPORA


def load_documents(name: str) -> list[str]:
    """The documents of a corpus."""
    if name not in CORPORA:
        return own_documents(named_corpus(name))
    documents: list[str] = json.loads(read(CORPORA[name])["documents.json"])
    return documents


def split_documents(documents: list[str]) -> tuple[list[str], list[str]]:
    """Training and validation documents: every tenth is held out."""
    held_out = set(range(HELD_OUT_EVERY - 1, len(documents), HELD_OUT_EVERY))
    train = [text for number, text in enumerate(documents) if number not in held_out]
    return train, [documents[number] for number in sorted(held_out)]


@dataclass(frozen=True)
class EncodedCorpus:
    """The training and the validation documents, each as one row of tokens; token 0 is the mask."""

    train: NDArray[np.int32]
    validation: NDArray[np.int32]
    vocabulary: int
    pieces: tuple[bytes, ...] = ()
    """the UTF-8 that each token stands for; of the mask its name"""


@cache
def encoded_corpus(name: str, vocabulary: int) -> EncodedCorpus:
    """A corpus as tokens; the encoding is learned from its training documents alone."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("tokenizers", "text") from None
    train, validation = split_documents(load_documents(name))
    key = "\0".join([tokenizers.__version__, str(vocabulary), str(HELD_OUT_EVERY), *train, *validation])
    kept = "own" if is_own(name) else name
    path = cache_folder() / "encoded" / f"{kept}-{vocabulary}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    found = _load(path)
    if found is None:
        found = encode(train, validation, vocabulary)
        if found.vocabulary < vocabulary:
            raise RequestError(_too_short(name, sum(map(len, train + validation)), found.vocabulary, vocabulary))
        _keep(path, found)
    elif not found.pieces:  # kept by an older version
        found = dataclasses.replace(found, pieces=_spelled(_learned(train, vocabulary)))
        with contextlib.suppress(WorkError):  # a cache that others may only read is still of use
            _keep(path, found)
    return found


def _keep(path: Path, corpus: EncodedCorpus) -> None:
    stream = io.BytesIO()
    spelled = np.frombuffer(json.dumps([piece.hex() for piece in corpus.pieces]).encode(), dtype=np.uint8)
    np.savez_compressed(stream, train=corpus.train, validation=corpus.validation, vocabulary=corpus.vocabulary, pieces=spelled)
    keep("encoded", {path.name: stream.getvalue()})


def _too_short(name: str, length: int, given: int, wanted: int) -> str:
    """What to say of a text whose pairs give a smaller vocabulary than is wanted."""
    path = name.rpartition("@")[0] or name
    if given >= LEAST_VOCABULARY:
        short = f"{path} is too short for a vocabulary of {wanted:,}"
        return f"{short}: its pairs give {given:,}; set task.vocabulary to that or less."
    if length < LEAST:
        return f"{path} is too short: it has {length:,} characters, and about {LEAST:,} are needed."
    gives = f"its {length:,} characters give a vocabulary of {given:,}, and the least is {LEAST_VOCABULARY:,}"
    return f"{path} repeats itself too much: {gives}; bring more varied text."


def _load(path: Path) -> EncodedCorpus | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        spelled = json.loads(arrays["pieces"].tobytes()) if "pieces" in arrays else []
        pieces = tuple(bytes.fromhex(piece) for piece in spelled)
        return EncodedCorpus(arrays["train"], arrays["validation"], int(arrays["vocabulary"]), pieces)


def encode(train: list[str], validation: list[str], vocabulary: int) -> EncodedCorpus:
    """Learn the pairs from the training documents and encode all."""
    tokenizer = _learned(train, vocabulary)
    rows = [
        np.concatenate([np.asarray(encoding.ids, dtype=np.int32) for encoding in tokenizer.encode_batch(texts)])
        for texts in (train, validation)
    ]
    return EncodedCorpus(rows[0], rows[1], tokenizer.get_vocab_size(), _spelled(tokenizer))


def _learned(train: list[str], vocabulary: int) -> Tokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # so that any text can be encoded, seen before or not
        show_progress=False,
    )
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer


def _spelled(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    """The bytes of each token. A byte that is no printable letter of Latin-1 has one from 256 on, in their order."""
    letters = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in letters]
    byte_of = {chr(byte): byte for byte in letters} | {chr(256 + place): byte for place, byte in enumerate(others)}
    numbers = tokenizer.get_vocab()
    mask, *names = sorted(numbers, key=numbers.__getitem__)
    return (mask.encode(), *(bytes(byte_of[letter] for letter in name) for name in names))
