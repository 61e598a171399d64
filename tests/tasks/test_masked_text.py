"""Masked text on a corpus small enough to count by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from eureka.data import text
from eureka.data.catalogue import CATALOGUE
from eureka.data.store import located
from eureka.errors import WorkError
from eureka.tasks.masked_text import MASK, MaskedText, Statistics
from eureka.tasks.task import IGNORED, Batch

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

SOUNDS = ["ta", "lo", "mi", "re", "su", "ka", "no", "ve"]


def document(number: int) -> str:
    """A text like no other: nonsense with favourite words, and a mark of its own."""
    rng = np.random.default_rng(number)
    words = ["".join(rng.choice(SOUNDS, rng.integers(1, 4))) for _ in range(30)]
    text = rng.choice(words, 400, p=(p := 1 / np.arange(1, 31)) / p.sum())
    return f"document{'abcdefghijklmnopqrstuvwxyz'[number % 26] * (3 + number)} " + " ".join(text)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    documents = [document(number) for number in range(25)]
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path))
    monkeypatch.setattr(text, "load_documents", lambda name: documents)
    text.encoded_corpus.cache_clear()
    return documents


@pytest.fixture
def task(corpus: list[str]) -> MaskedText:
    return MaskedText(corpus="sotu", vocabulary=320, length=32)


def test_every_tenth_document_is_held_out_and_shared_by_nobody(corpus: list[str]) -> None:
    train, validation = text.split_documents(corpus)
    assert validation == [corpus[9], corpus[19]]
    assert sorted(train + validation) == sorted(corpus)
    assert not set(train) & set(validation)


def test_the_encoding_is_learned_from_the_training_documents_alone(corpus: list[str]) -> None:
    train, validation = text.split_documents(corpus)
    alone, other = text.encode(train, validation, 320), text.encode(train, [document(99)], 320)
    assert np.array_equal(alone.train, other.train)
    assert alone.vocabulary == 320
    assert alone.train.min() > MASK  # the mask is no part of any text


def test_the_encoding_is_kept_and_read_back(corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = text.encoded_corpus("sotu", 320)
    text.encoded_corpus.cache_clear()
    monkeypatch.setattr(text, "encode", lambda *given: pytest.fail("it was encoded again"))
    again = text.encoded_corpus("sotu", 320)
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.validation, again.validation)
    assert len(list((tmp_path / "data/encoded").iterdir())) == 1


def test_the_pieces_spell_the_documents(corpus: list[str]) -> None:
    strange = "naïve café 春眠 🙂 \x07 tab\tline\r\n"
    train, validation = [*corpus[:3], strange], [strange, "\u00ad\u00a0\u007f"]
    encoded = text.encode(train, validation, 300)
    assert len(encoded.pieces) == encoded.vocabulary
    assert encoded.pieces[MASK] == b"[MASK]"
    assert b"".join(encoded.pieces[token] for token in encoded.train) == "".join(train).encode()
    assert b"".join(encoded.pieces[token] for token in encoded.validation) == "".join(validation).encode()


@pytest.mark.parametrize("writable", [True, False])
def test_an_encoding_that_an_older_version_kept_gets_its_pieces_and_stays_as_it_is(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    first = text.encoded_corpus("sotu", 320)
    [path] = (tmp_path / "data/encoded").iterdir()
    np.savez_compressed(path, train=first.train[::-1], validation=first.validation, vocabulary=320)  # reversed, to be told apart
    text.encoded_corpus.cache_clear()
    if not writable:
        monkeypatch.setattr(text, "keep", refused)
    again = text.encoded_corpus("sotu", 320)
    assert again.pieces == first.pieces
    assert np.array_equal(again.train, first.train[::-1])
    with np.load(path, allow_pickle=False) as arrays:
        assert ("pieces" in arrays) == writable


def refused(name: str, contents: dict[str, bytes]) -> Path:
    raise WorkError("cannot write to the cache")


def test_windows_are_pieces_of_their_own_side(task: MaskedText) -> None:
    for split in ("train", "validation"):
        row = task.rows[split].tolist()
        batch = task.sample(50, Generator().manual_seed(0), split)
        windows = {tuple(row[i : i + 32]) for i in range(len(row) - 31)}
        assert all(tuple(tokens) in windows for tokens in batch.steps["token"].tolist())


def test_fifteen_percent_are_asked_for_of_which_eighty_percent_are_hidden(task: MaskedText) -> None:
    batch = task.sample(4_000, Generator().manual_seed(1))
    tokens, asked = batch.steps["token"], batch.labels != IGNORED
    assert asked.float().mean().item() == pytest.approx(0.15, abs=0.005)
    assert torch.equal(batch.labels[asked], tokens[asked])
    assert torch.equal(batch.inputs[~asked], tokens[~asked])
    shown = batch.inputs[asked]
    assert (shown == MASK).float().mean().item() == pytest.approx(0.8, abs=0.015)
    replaced = (shown != MASK) & (shown != tokens[asked])
    assert replaced.float().mean().item() == pytest.approx(0.1, abs=0.012)
    assert len(set(shown[replaced].tolist())) > 250  # by any token
    assert torch.equal(batch.steps["hidden"].bool(), batch.inputs == MASK)


def test_levels_are_those_of_counting_one_token_at_a_time(task: MaskedText) -> None:
    """Twins of the matrix formulas: dictionaries, logarithms and one token after the other."""
    train, validation, V = task.rows["train"].tolist(), task.rows["validation"].tolist(), task.classes
    counts = Counter(train)
    frequency = {v: (counts[v] + 1) / (len(train) + V - 1) for v in range(1, V)}
    statistics = Statistics(task.rows["train"], task.rows["validation"], V)

    loss = sum(-math.log(frequency[v]) for v in validation) / len(validation)
    best = max(frequency, key=frequency.__getitem__)
    assert statistics.unigram() == pytest.approx((loss, validation.count(best) / len(validation)))

    followers: dict[int, Counter[int]] = {}
    for before, after in itertools.pairwise(train):
        followers.setdefault(before, Counter())[after] += 1

    def believed(before: int, after: int) -> float:
        seen = followers.get(before, Counter())
        total, kinds = sum(seen.values()), len(seen)
        return (seen[after] + kinds * frequency[after]) / (total + kinds) if total else frequency[after]

    pairs = list(itertools.pairwise(validation))
    loss = sum(-math.log(believed(before, after)) for before, after in pairs) / len(pairs)
    right = sum(max(frequency, key=lambda v: believed(before, v)) == after for before, after in pairs[:150]) / 150
    found = statistics.bigram()
    assert found[0] == pytest.approx(loss)
    assert found[1] == pytest.approx(right, abs=0.13)


def test_the_level_where_a_token_is_seen_is_that_of_bayes(task: MaskedText) -> None:
    statistics = Statistics(task.rows["train"], task.rows["validation"], task.classes)
    V, frequency, truth = task.classes, statistics.frequency.tolist(), statistics.truth.tolist()
    loss = 0.0
    for shown in range(1, V):
        evidence = sum(0.5 * frequency[v] * ((shown == v) + 1 / (V - 1)) for v in range(1, V))
        for label in range(1, V):
            happens = 0.5 * truth[label] * ((shown == label) + 1 / (V - 1))
            belief = 0.5 * frequency[label] * ((shown == label) + 1 / (V - 1)) / evidence
            loss -= happens * math.log(belief)
    assert statistics.seen(0.5)[0] == pytest.approx(loss)


def test_levels_fall_and_smoothing_raises_them(task: MaskedText) -> None:
    plain, smooth = task.levels(), task.levels(0.1)
    assert [level.loss for level in plain] == sorted((level.loss for level in plain), reverse=True)
    assert [level.accuracy for level in plain] == sorted(level.accuracy for level in plain)
    assert all(after.loss > before.loss for before, after in zip(plain, smooth, strict=True))


def test_predictors_that_know_frequencies_and_the_place_sit_at_the_levels(task: MaskedText) -> None:
    batch = task.sample(4_000, Generator().manual_seed(2), "validation")
    statistics = Statistics(task.rows["train"], task.rows["validation"], task.classes)
    f, V = statistics.frequency, task.classes
    outputs = f.log().clamp_min(-60).repeat(4_000, 32, 1).float()
    check(task, batch, outputs, 0)
    seen = torch.diag(f) + f / (V - 1)
    visible = batch.inputs != MASK
    outputs[visible] = (seen / seen.sum(1, keepdim=True)).log().clamp_min(-60).float()[batch.inputs[visible]]
    check(task, batch, outputs, 1)


def check(task: MaskedText, batch: Batch, outputs: Tensor, level: int) -> None:
    assert task.loss(outputs, batch).item() == pytest.approx(task.levels()[level].loss, rel=0.02)
    assert task.accuracy(outputs, batch).item() == pytest.approx(task.levels()[level].accuracy, abs=0.015)


def test_the_real_corpus_has_a_plateau_well_above_its_pairs() -> None:
    if located(CATALOGUE["moby_dick"]) is None:
        pytest.skip("moby_dick is not in the cache; `eureka data fetch moby_dick` brings it")
    text.encoded_corpus.cache_clear()
    unigram, _, bigram = MaskedText(corpus="moby_dick", vocabulary=500).levels()
    assert 4 < unigram.loss < 6
    assert bigram.loss < unigram.loss - 0.5
