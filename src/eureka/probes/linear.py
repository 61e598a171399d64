"""Linear probes: which intermediate answers a logistic regression can read off each layer and head of a model.

On a plateau it can read the indicators off the first layer although the model does not use them: the paper's evidence that the
features are there and the attention is not.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from eureka.errors import RequestError
from eureka.patching.attach import AttentionCall, Layers, Site
from eureka.probes.capture import capture, eval_mode, operator_of, run_model, sites_of
from eureka.runs import LinearProbe

Array = np.ndarray[Any, Any]
Tokens = Literal["all", "mean"] | int
REPRESENTATIONS = ("q", "k", "v", "z", "block")

PORTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of the training samples after which the probe of the online code is fitted again."""
HELD_OUT = 0.25
"""The share of samples that accuracy is measured on."""
MAX_ROWS = 4000
"""More rows do not change the first two digits."""
INVERSE_PENALTY = 0.1
"""scikit-learn's C; representations have hundreds of features and some thousand samples."""


class SamplesTask(Protocol):
    """The part of a task that a probe needs."""

    def sample(self, n: int, generator: Generator, /) -> Any: ...


def linear_probes(
    model: nn.Module,
    data: SamplesTask | tuple[Any, Mapping[str, Tensor]],
    *,
    samples: int = 1024,
    generator: Generator | None = None,
    layers: Layers | None = None,
    representations: tuple[str, ...] = REPRESENTATIONS,
    answers: tuple[str, ...] | None = None,
    tokens: Tokens = "all",
    on_fit: Callable[[int, int], None] | None = None,
) -> list[LinearProbe]:
    """Logistic probes for every intermediate answer, on every representation of every layer and head.

    Args:
        data: a task, of which `samples` are drawn with `generator`, or (inputs, {name: answers}) with whole numbers, one for
            each sample or one for each token
        tokens: which tokens a sample's answer is read off: "all" side by side, their "mean", or the one at an index
        on_fit: is told after each probe how many are done, and of how many
    """
    unknown = set(representations) - set(REPRESENTATIONS)
    if unknown:
        raise RequestError(f"a representation is one of {', '.join(REPRESENTATIONS)}, not {sorted(unknown)[0]!r}.")
    inputs, known = _drawn(data, samples, generator)
    chosen = known if answers is None else {name: known[name] for name in answers if name in known}
    if not chosen:
        raise RequestError(f"there is nothing to read off: the data knows {', '.join(known) or 'no intermediate answers'}.")
    found: list[LinearProbe] = []
    places = _places(model, inputs, sites_of(model, layers), representations)
    for place in places:
        for answer, labels in chosen.items():
            fit = fit_probe(*_paired(place.features, labels, tokens))
            found.append(place.probe(answer, fit))
            if on_fit:
                on_fit(len(found), len(places) * len(chosen))
    return found


def _drawn(data: Any, samples: int, generator: Generator | None) -> tuple[Any, dict[str, Tensor]]:
    if isinstance(data, tuple):
        inputs, known = data
        return inputs, dict(known)
    batch = data.sample(samples, generator or Generator().manual_seed(0))
    answers = {name: values for name, values in batch.steps.items() if not values.is_floating_point()}
    label = {"label": batch.labels} if not batch.labels.is_floating_point() else {}
    return batch.inputs, answers | label


@dataclass(frozen=True)
class Place:
    """Where answers are read off: a head of a site, or its block."""

    site: Site
    head: int | None
    kind: str
    features: Tensor
    """(B, N, features); N is 1 for what has no tokens"""

    def probe(self, answer: str, fit: ProbeFit) -> LinearProbe:
        place: dict[str, Any] = {"site": self.site.name, "layer": self.site.index, "head": self.head}
        return LinearProbe(**place, representation=self.kind, answer=answer, **asdict(fit))


@torch.no_grad()
def _places(model: nn.Module, inputs: Any, sites: list[Site], wanted: tuple[str, ...]) -> list[Place]:
    """Every site, kind and head, after one forward pass."""
    with eval_mode(model), capture(model, sites) as calls, _block_outputs(model, sites) as blocks:
        run_model(model, inputs)
    places: list[Place] = []
    for site in (site for site in sites if calls[site.index]):
        for kind in wanted:
            if kind != "block":
                whole = _of_call(site, calls[site.index][0], kind)
                places += [Place(site, head, kind, whole[:, head]) for head in range(whole.shape[1])]
            elif site.index in blocks:
                places.append(Place(site, None, kind, blocks[site.index]))
    return places


def _of_call(site: Site, call: AttentionCall, kind: str) -> Tensor:
    """q, k, v or the mixed values z, (B, H, N, D)."""
    if kind in "qk":
        return call.q if kind == "q" else call.k
    if call.v is None:
        raise RequestError(
            f"{site.name or type(site.module).__name__} writes its attention out, and its values could not be followed; choose"
            " representations=… without 'v' and 'z', or leave it out with layers=…."
        )
    return call.v if kind == "v" else operator_of(call)(call.q, call.k, call.v, call.mask)


@contextmanager
def _block_outputs(model: nn.Module, sites: list[Site]) -> Iterator[dict[int, Tensor]]:
    """While inside, keep the output of the block of each site: the nearest module above it whose name is a number."""
    named, kept, hooks = dict(model.named_modules()), dict[int, Tensor](), []
    for site in sites:
        parts = site.name.split(".")
        numbered = [i for i, part in enumerate(parts) if part.isdigit()]
        if numbered:
            block = named[".".join(parts[: numbered[-1] + 1])]
            hooks.append(block.register_forward_hook(partial(_keep_block, kept, site.index)))
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def _keep_block(kept: dict[int, Tensor], index: int, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001 - a hook's
    tensor = _main_output(output)
    if tensor.dim() == 3:
        kept.setdefault(index, tensor)


def _main_output(output: Any) -> Tensor:
    """The tensor in the output of a model or layer: Hugging Face wraps it in tuples and mappings."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), Tensor):
            return getattr(output, name)  # type: ignore[no-any-return]
    return _main_output(next(iter(output.values() if isinstance(output, Mapping) else output)))


def _paired(features: Tensor, labels: Tensor, tokens: Tokens) -> tuple[Array, Array]:
    """Rows of features and their answers; if there is an answer for each token, each token is a row."""
    if labels.dim() == 2 and labels.shape[:2] == features.shape[:2]:
        x, y = features.flatten(0, 1), labels.flatten()
    elif labels.dim() == 1:
        x = features.mean(dim=1) if tokens == "mean" else features.flatten(1) if tokens == "all" else features[:, tokens]
        y = labels
    else:
        raise RequestError(f"answers of shape {tuple(labels.shape)} fit neither samples nor tokens {tuple(features.shape[:2])}.")
    if len(x) != len(y):
        raise RequestError(f"there are {len(y)} answers, and attention over {len(x)} samples: its heads could not be told apart.")
    keep = y >= 0  # a negative number marks a token without an answer
    return x[keep].double().cpu().numpy(), y[keep].cpu().numpy()


@dataclass(frozen=True)
class ProbeFit:
    """How well one probe does; the fields are those of `LinearProbe`."""

    accuracy: float
    chance: float
    bits: float
    uniform_bits: float


def fit_probe(x: Array, y: Array) -> ProbeFit:
    """Fit a logistic regression of y on the rows of x, which are taken as independent and in random order.

    The code length is that of Voita & Titov (2020): the first portion is sent by a uniform code, each later one by the
    probabilities of a probe fitted to all before it. bits = (t₁ log₂ K + Σ -log₂ p(y_new | x_new)) / n

    It takes one thread. The products are small, and on a busy machine the threads of BLAS spend nearly all of their time waiting
    for each other (`python -m benchmarks.probes`).
    """
    with threads(1):
        return fitted(x, y)


def fitted(x: Array, y: Array) -> ProbeFit:
    """The same with as many threads as there are."""
    x, y = x[:MAX_ROWS], y[:MAX_ROWS]
    classes = np.unique(y)
    cut = round(len(y) * (1 - HELD_OUT))
    if len(classes) < 2 or cut < 16:
        return ProbeFit(math.nan, math.nan, math.nan, math.nan)
    codes = np.searchsorted(classes, y)
    chance = np.bincount(codes).max() / len(codes)
    guesses = _log_probabilities(x[:cut], codes[:cut], x[cut:], len(classes)).argmax(axis=1)
    return ProbeFit(
        accuracy=float((guesses == codes[cut:]).mean()),
        chance=float(chance),
        bits=_code_length(x[:cut], codes[:cut], len(classes)),
        uniform_bits=math.log2(len(classes)),
    )


@contextmanager
def threads(most: int) -> Iterator[None]:
    """While inside, NumPy, SciPy and scikit-learn compute with so many threads."""
    with _thread_pools().limit(limits=most):
        yield


@cache
def _thread_pools() -> Any:
    """The libraries that have threads; they are looked for once, after scikit-learn has loaded its own."""
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import ThreadpoolController  # scikit-learn requires it

    return ThreadpoolController()


def _code_length(x: Array, y: Array, classes: int) -> float:
    ends = [max(1, round(portion * len(y))) for portion in PORTIONS]
    bits = ends[0] * math.log2(classes)
    for start, end in itertools.pairwise(ends):
        logs = _log_probabilities(x[:start], y[:start], x[start:end], classes)
        bits -= float(logs[np.arange(end - start), y[start:end]].sum()) / math.log(2)
    return bits / len(y)


def _log_probabilities(x: Array, y: Array, new: Array, classes: int) -> Array:
    """(rows, classes) of the rows of `new`, by a probe fitted to x and y.

    One part in a hundred is uniform, so that a class that y does not contain costs a finite number of bits.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    present = np.unique(y)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_PENALTY, max_iter=200))
    model = probe if len(present) > 1 else DummyClassifier()  # logistic regression refuses a single class
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a nearly converged probe is good enough
        model.fit(x, y)
    p = np.zeros((len(new), classes))
    p[:, present] = model.predict_proba(new)
    logs: Array = np.log(0.99 * p + 0.01 / classes)
    return logs
