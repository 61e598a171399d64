"""Byte-pair encoding of a corpus: learned from its training documents, kept in the cache."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eureka.data.loading import load_documents
from eureka.data.store import cache_folder, write_whole
from eureka.errors import MissingExtraError

MASK = "[MASK]"
HELD_OUT_EVERY = 10


@dataclass(frozen=True)
class EncodedCorpus:
    """The training and validation documents as two rows of tokens; token 0 is the mask."""

    train: NDArray[np.int32]
    validation: NDArray[np.int32]
    vocabulary: int


@cache
def encoded_corpus(name: str, vocabulary: int) -> EncodedCorpus:
    """A corpus whose every tenth document is held out; the encoding is learned from the others alone."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("tokenizers", "text") from None
    train, validation = split_documents(load_documents(name))
    key = "\0".join([tokenizers.__version__, str(vocabulary), str(HELD_OUT_EVERY), *train, *validation])
    path = cache_folder() / "encoded" / f"{name}-{vocabulary}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    found = _load(path)
    if found is None:
        found = encode(train, validation, vocabulary)
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = io.BytesIO()
        np.savez_compressed(stream, train=found.train, validation=found.validation, vocabulary=found.vocabulary)
        write_whole(path, stream.getvalue())
    return found


def _load(path: Path) -> EncodedCorpus | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return EncodedCorpus(arrays["train"], arrays["validation"], int(arrays["vocabulary"]))


def split_documents(documents: list[str]) -> tuple[list[str], list[str]]:
    """Training and validation documents: every tenth is held out."""
    held_out = set(range(HELD_OUT_EVERY - 1, len(documents), HELD_OUT_EVERY))
    train = [text for number, text in enumerate(documents) if number not in held_out]
    return train, [documents[number] for number in sorted(held_out)]


def encode(train: list[str], validation: list[str], vocabulary: int) -> EncodedCorpus:
    """Learn the pairs from the training documents and encode all."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # every text can be encoded, seen before or not
        show_progress=False,
    )
    tokenizer.train_from_iterator(train, trainer)
    rows = [
        np.concatenate([np.asarray(encoding.ids, dtype=np.int32) for encoding in tokenizer.encode_batch(texts)])
        for texts in (train, validation)
    ]
    return EncodedCorpus(rows[0], rows[1], tokenizer.get_vocab_size())
