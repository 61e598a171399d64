"""Do the labels follow from the inputs at all? Searched for without the model, beside labels that were shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from eureka.doctor.checks.targets import REGRESSIONS
from eureka.doctor.exam import STEPS, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.modular import modulus_of
from eureka.doctor.sight import sees_later, sequence_of
from eureka.doctor.view import View
from eureka.formats import percent

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST, MOST = 256, 1000
"""Samples that are needed, and that are looked at."""
RELATED = 0.985
"""A loss below this share of chance shows that the model has found a relation."""
COLUMNS = 512
"""Inputs that the forest is given, at most."""
SHUFFLES = 20
BY_FOREST = 0.6
"""How sure it is that there is no relation if a forest finds none: it may be too weak."""
SEEN = 2.5
"""The forest has found a relation if labels are likelier to it than in another order by this many standard deviations."""
CLEAR = 6.0
"""A relation is found if it exceeds that of shuffled labels by this many standard deviations."""
FORETOLD = 0.02
"""A forest that explains more than this share of the variance of values it has not seen has found a relation."""
LAGS = 8
"""Tokens up to so many places before a label are looked at, and after it where the model sees those."""


def check(exam: Exam) -> Iterator[Finding]:
    chance = exam.chance
    if exam.well or chance is None or exam.level < RELATED * chance or _finding_one(exam, chance):
        return
    views = [exam.peek(batch=batch) for batch in exam.case.batches]
    after = LAGS if sees_later(exam) else 0
    by_token = labels_of(views[0]) is not None
    found = _in_sequences(views, after) if by_token else _in_samples(views) or _in_values(views, after)
    if found is None or exam.once(modulus) is not None:
        return
    told = (found, f"The loss is {exam.level:.4g}, and chance is {chance:.4g}.")
    yield Finding(
        cause="labels_unrelated",
        sure=0.85 if by_token else BY_FOREST,
        explains=0.95,
        evidence=told if by_token else (*told, "A forest may not find what no single input tells."),
        advice="look at how inputs and labels are joined: an index that is off, a shuffle of one and not of the other.",
    )


def modulus(exam: Exam) -> int | None:
    """Where the labels are a sum of inputs modulo a prime, that prime."""
    found = _samples([exam.peek(batch=batch) for batch in exam.case.batches], counted=False)
    return None if found is None or len(found[1]) < LEAST else modulus_of(*found)


def _finding_one(exam: Exam, chance: float) -> bool:
    """Whether the continued run comes below chance on batches that it has not seen before."""
    return exam.learning and exam.end < RELATED * chance and len(exam.case.batches) >= STEPS


def labels_of(view: View) -> tuple[Tensor, Tensor] | None:
    """Tokens and the label at each of them, where there is one; labels that do not count are -1."""
    tokens, call = view.tokens, next((one for one in view.losses if one.name in ("cross_entropy", "nll_loss")), None)
    if tokens is None or call is None or call.target.is_floating_point() or call.target.numel() < len(tokens) * 2:
        return None
    labels = call.target.detach()
    labels = labels.masked_fill(labels == int(call.settings.get("ignore_index", -100)), -1)
    if labels.numel() % len(tokens):
        return None
    labels = labels.reshape(len(tokens), -1)
    width = min(labels.shape[1], tokens.shape[1])  # a loss may leave out the last place
    return tokens[:, :width].long(), labels[:, :width].long()


def _in_sequences(views: list[View], after: int) -> str | None:
    """What the tokens that a model sees say about the label at a place, if that is nothing."""
    pairs = [pair for view in views if (pair := labels_of(view)) is not None]
    if not pairs:
        return None
    tokens, labels = (
        torch.cat(parts).cpu().numpy() for parts in (_filled([one for one, _ in pairs]), _filled([one for _, one in pairs], -1))
    )
    if (labels >= 0).sum() < LEAST:
        return None
    rng = np.random.default_rng(0)
    own = _related(tokens, labels, after)
    mixed = np.array([_related(tokens, _shuffled(labels, rng), after) for _ in range(SHUFFLES)])
    if (own > mixed.mean(axis=0) + CLEAR * mixed.std(axis=0) + 1e-9).any() or _determined(tokens, labels):
        return None
    where = "before or after" if after else "before"
    return (
        f"{(labels >= 0).sum():,} labels are no more related to any token up to {LAGS} places {where} them, and occur no more"
        " often among the tokens before them, than labels that were shuffled."
    )


def _filled(given: Sequence[Tensor], fill: int | None = None) -> list[Tensor]:
    """Batches of sequences of one length: shorter ones are filled up at their ends, with 0 or with a token that is not there."""
    longest = max(one.shape[1] for one in given)
    if fill is None:
        fill = 0 if given[0].is_floating_point() else int(max(one.max() for one in given)) + 1
    short = [(one, (0, 0) * (one.dim() - 2) + (0, longest - one.shape[1])) for one in given]
    return [one if not missing[-1] else F.pad(one, missing, value=fill) for one, missing in short]


def _shuffled(labels: Ints, rng: np.random.Generator) -> Ints:
    """The labels that count change places among each other."""
    mixed, counted = labels.copy(), labels >= 0
    mixed[counted] = rng.permutation(labels[counted])
    return mixed


def _related(tokens: Ints, labels: Ints, after: int) -> Floats:
    """The bits that a token so far away tells about a label; and how often a label was there as a token before."""
    found, length = [], tokens.shape[1]
    for lag in range(-after, LAGS + 1):
        if abs(lag) < length:
            near = tokens[:, max(0, -lag) : length - max(0, lag)]
            far = labels[:, max(0, lag) : length - max(0, -lag)]
            found.append(_information(near[far >= 0], far[far >= 0]))
    earlier = [[label in row[: t + 1] for t, label in enumerate(asked) if label >= 0] for row, asked in _rows(tokens, labels)]
    before = [value for values in earlier for value in values]
    return np.array([*found, float(np.mean(before)) if before else 0.0])


def _determined(tokens: Ints, labels: Ints) -> bool:
    """Whether equal rows of tokens before a label, up to `LAGS` of them or all, have equal labels more often than others do.

    This finds what no single token tells, such as a sum.
    """
    counted = labels[labels >= 0]
    alike = float((np.bincount(counted) / len(counted)) @ (np.bincount(counted) / len(counted)))
    for whole in (False, True):
        known = np.zeros_like(tokens) + (np.arange(tokens.shape[1]) if whole else 0)
        for back in range(LAGS):
            known = _joined(known, tokens, back, whole=whole)
            agree, pairs = _agreement(known[:, back:], labels[:, back:])
            clear = agree > 1.2 * alike and agree > alike + CLEAR * np.sqrt(alike * (1 - alike) / max(pairs, 1))
            if pairs >= 20 and clear:
                return True
    return False


def _joined(known: Ints, tokens: Ints, back: int, *, whole: bool) -> Ints:
    """Numbers for rows of tokens that are longer by one: the token so far back, or (`whole`) the first ones of a row."""
    further = np.where(np.arange(tokens.shape[1]) >= back, tokens[:, [back]], -1) if whole else np.roll(tokens, back, axis=1)
    pairs = known * (int(tokens.max()) + 2) + further + 1
    numbers: Ints = np.unique(pairs, return_inverse=True)[1].reshape(tokens.shape).astype(np.int64)
    return numbers


def _agreement(known: Ints, labels: Ints) -> tuple[float, int]:
    """Of all pairs of places with the same row before them, the share with the same label; and how many pairs there are."""
    counted = labels >= 0
    groups, asked = known[counted], labels[counted]
    same = np.unique(groups * (int(labels.max()) + 1) + asked, return_counts=True)[1].astype(np.int64)
    size = np.unique(groups, return_counts=True)[1].astype(np.int64)
    pairs = int((size * (size - 1) // 2).sum())
    return (float((same * (same - 1) // 2).sum()) / pairs if pairs else 0.0), pairs


def _rows(tokens: Ints, labels: Ints) -> Iterator[tuple[list[int], list[int]]]:
    return zip(tokens[:256].tolist(), labels[:256].tolist(), strict=True)


def _information(one: Ints, other: Ints) -> float:
    if not len(one):
        return 0.0
    pairs = one.astype(np.int64) * (int(other.max()) + 1) + other
    return _entropy(one) + _entropy(other) - _entropy(pairs)


def _entropy(values: Ints) -> float:
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def _in_samples(views: list[View]) -> str | None:
    """What a forest of trees finds, if that is nothing."""
    found = _samples(views)
    if found is None:
        return None
    once = _first_places(found[0])
    found = found[0][once], found[1][once]
    if len(found[1]) < LEAST or len(np.unique(found[1])) < 2:
        return None
    own, usual, error = _likeliness(*found)
    if own > usual + SEEN * error:
        return None
    return (
        f"A forest of trees finds no relation between inputs and labels in {len(found[1]):,} samples: to the right labels of"
        f" those that it has not seen it gives a probability of {percent(own)}, and to labels in another order {percent(usual)}."
    )


def _first_places(features: Floats) -> Ints:
    """Where each row occurs first, in order: knowing a row by heart says nothing of how inputs and labels are related."""
    places: Ints = np.sort(np.unique(features, axis=0, return_index=True)[1])
    return places


def _samples(views: list[View], *, counted: bool = True) -> tuple[Floats, Ints] | None:
    """One row a sample: what the model was given, and the label; None where a sample has no one label."""
    inputs, labels = [], []
    for view in views:
        call = next((one for one in view.losses if one.name in ("cross_entropy", "nll_loss")), None)
        sequence = sequence_of(view)
        given = sequence if sequence is not None else _first(view)
        if call is None or given is None or call.target.dim() != 1 or len(call.target) != len(given):
            return None
        if _number_samples(call.target):
            return None
        inputs.append(given.detach())
        labels.append(call.target.detach().cpu().numpy())
    if len({(one.dim(), one.shape[2:]) for one in inputs}) != 1:
        return None
    features = [_features(one, counted=counted) for one in _filled(inputs)]
    return np.concatenate(features)[:MOST], np.concatenate(labels)[:MOST]


def _number_samples(target: Tensor) -> bool:
    """Whether the labels number the samples of the batch: a contrastive loss asks which of them belongs to which."""
    return len(target) > 1 and torch.equal(target.sort().values, torch.arange(len(target), device=target.device))


def _features(given: Tensor, *, counted: bool = True) -> Floats:
    """The values themselves, and for tokens how often each occurs, unless they are not to be counted."""
    flat = given.float().flatten(1).cpu().numpy().astype(np.float64)
    if not counted or given.is_floating_point() or int(given.max()) > 4096:
        return flat
    size = 4097
    counts = np.stack([np.bincount(row, minlength=size)[:size] for row in given.cpu().numpy()]).astype(np.float64)
    return np.concatenate([flat, counts], axis=1)


def _first(view: View) -> Tensor | None:
    """What the model is given first, without masks and labels by their names."""
    named = (one for name, one in view.keywords.items() if not any(part in name for part in ("mask", "label", "position")))
    return next((one for one in (*view.inputs, *named) if isinstance(one, torch.Tensor) and one.dim() >= 2), None)


def _in_values(views: list[View], after: int) -> str | None:
    """For a target of numbers: what a forest of trees foretells of it, if that is nothing. Of a series, at two of its places."""
    calls = [next((one for one in view.losses if one.name in REGRESSIONS), None) for view in views]
    given = [sequence if (sequence := sequence_of(view)) is not None else _first(view) for view in views]
    pairs = [
        (x.detach(), call.target.detach()) for x, call in zip(given, calls, strict=True) if x is not None and call is not None
    ]
    if len(pairs) < len(views) or len({(x.dim(), x.shape[2:], y.shape[1:]) for x, y in pairs}) != 1:
        return None
    x, y = (torch.cat(parts)[:MOST] for parts in (_filled([x for x, _ in pairs]), [y for _, y in pairs]))
    if len(x) != len(y):
        return None
    once = torch.from_numpy(_first_places(x.float().flatten(1).cpu().numpy()))
    x, y = x[once.to(x.device)], y[once.to(y.device)]
    if len(x) < LEAST:
        return None
    series = y.dim() == 3 and x.dim() == 3 and y.shape[1] == x.shape[1]
    places = [y.shape[1] // 2, y.shape[1] - 1] if series else [0]
    scores = [
        _foretold(_features(x[:, : place + 1] if series and not after else x), _values(y[:, place] if series else y))
        for place in places
    ]
    if max(scores) > FORETOLD:
        return None
    return (
        f"A forest of trees finds no relation between inputs and targets in {len(x):,} samples: of the variance of those it has"
        f" not seen it explains {percent(max(*scores, 0.0))}."
    )


def _values(target: Tensor) -> Floats:
    values: Floats = target.reshape(len(target), -1)[:, 0].double().cpu().numpy()
    return values


def _foretold(x: Floats, y: Floats) -> float:
    """The share of the variance of held-out values that a forest explains."""
    from sklearn.ensemble import ExtraTreesRegressor

    half = len(y) // 2
    x = x[:, x.std(axis=0) > 0]
    if not x.shape[1] or not y[half:].std():
        return 0.0
    if x.shape[1] > COLUMNS:
        x = x[:, np.random.default_rng(0).choice(x.shape[1], COLUMNS, replace=False)]
    return float(ExtraTreesRegressor(40, min_samples_leaf=2, random_state=0).fit(x[:half], y[:half]).score(x[half:], y[half:]))


def _likeliness(x: Floats, y: Ints) -> tuple[float, float, float]:
    """The mean probability that a forest gives to labels it has not seen; the same for labels in other orders; and their spread.

    Each half is foretold from the other. Where one label is rare, the most frequent one is always the best guess, and yet a
    forest that has found something gives the rare one more where it is right.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    x = x[:, x.std(axis=0) > 0]
    if not x.shape[1]:
        return 0.0, 0.0, 0.0
    if x.shape[1] > COLUMNS:
        x = x[:, np.random.default_rng(0).choice(x.shape[1], COLUMNS, replace=False)]
    halves = [np.arange(0, len(y), 2), np.arange(1, len(y), 2)]
    chances = np.zeros((len(y), int(y.max()) + 1))
    for known, asked in (halves, halves[::-1]):
        forest = ExtraTreesClassifier(40, min_samples_leaf=2, random_state=0).fit(x[known], y[known])
        chances[np.ix_(asked, forest.classes_)] = forest.predict_proba(x[asked])
    rng, mixed = np.random.default_rng(0), list[float]()
    for _ in range(10 * SHUFFLES):
        other = y.copy()
        for half in halves:
            other[half] = rng.permutation(y[half])
        mixed.append(float(chances[np.arange(len(y)), other].mean()))
    return float(chances[np.arange(len(y)), y].mean()), float(np.mean(mixed)), float(np.std(mixed))
