"""What can be read off a model's layers by a line: which intermediate answers are known, and where.

On a plateau the indicators can be read off the first layer although the model does not use them: the paper's evidence that the
features are there and the attention is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from eureka.errors import RequestError
from eureka.patching.choose import Layers
from eureka.patching.seat import Seen
from eureka.patching.sites import Site
from eureka.probes.logistic import read_off
from eureka.probes.watching import as_is, main_output, operator_of, run_model, sites_of, watching
from eureka.runs import LinearProbe

Tokens = Literal["all", "mean"] | int
REPRESENTATIONS = ("q", "k", "v", "z", "block")


class SamplesTask(Protocol):
    """A task, as far as a probe needs it."""

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
) -> list[LinearProbe]:
    """Logistic probes for every intermediate answer, on every representation of every layer and head.

    data      a task, of which `samples` are drawn with `generator`, or (inputs, {name: answers}) with whole numbers, one for each
              sample or one for each token
    tokens    which tokens a sample's answer is read off: "all" side by side, their "mean", or the one at an index
    """
    unknown = set(representations) - set(REPRESENTATIONS)
    if unknown:
        raise RequestError(f"a representation is one of {', '.join(REPRESENTATIONS)}, not {sorted(unknown)[0]!r}.")
    inputs, known = _drawn(data, samples, generator)
    chosen = known if answers is None else {name: known[name] for name in answers if name in known}
    if not chosen:
        raise RequestError(f"there is nothing to read off: the data knows {', '.join(known) or 'no intermediate answers'}.")
    found: list[LinearProbe] = []
    for site, head, kind, features in _representations(model, inputs, sites_of(model, layers), representations):
        for answer, labels in chosen.items():
            x, y = _paired(features, labels, tokens)
            fit = read_off(x, y)
            place = {"site": site.name, "layer": site.index, "head": head, "representation": kind, "answer": answer}
            found.append(LinearProbe(**place, **fit))  # type: ignore[arg-type]
    return found


def _drawn(data: Any, samples: int, generator: Generator | None) -> tuple[Any, dict[str, Tensor]]:
    if isinstance(data, tuple):
        inputs, known = data
        return inputs, dict(known)
    batch = data.sample(samples, generator or Generator().manual_seed(0))
    answers = {name: values for name, values in batch.steps.items() if not values.is_floating_point()}
    label = {"label": batch.labels} if not batch.labels.is_floating_point() else {}
    return batch.inputs, answers | label


@torch.no_grad()
def _representations(
    model: nn.Module, inputs: Any, sites: list[Site], wanted: tuple[str, ...]
) -> Iterator[tuple[Site, int | None, str, Tensor]]:
    """(B, N, features) of every site, head and kind; N is 1 for what has no tokens."""
    with as_is(model), watching(model, sites) as kept, _block_outputs(model, sites) as blocks:
        run_model(model, inputs)
    for site in sites:
        if not kept[site.index]:
            continue
        seen = kept[site.index][0]
        for kind in wanted:
            if kind == "block":
                if site.index in blocks:
                    yield site, None, kind, blocks[site.index]
                continue
            whole = _of_call(seen, kind)
            for head in range(whole.shape[1]):
                yield site, head, kind, whole[:, head]


def _of_call(seen: Seen, kind: str) -> Tensor:
    """(B, H, N, D)"""
    if kind == "z":
        return operator_of(seen)(seen.q, seen.k, seen.v, seen.mask)  # type: ignore[no-any-return]
    return {"q": seen.q, "k": seen.k, "v": seen.v}[kind]


@contextmanager
def _block_outputs(model: nn.Module, sites: list[Site]) -> Iterator[dict[int, Tensor]]:
    """While inside, what the block around each site gives on is kept: the nearest module above it that is numbered."""
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
    tensor = main_output(output)
    if tensor.dim() == 3:
        kept.setdefault(index, tensor)


def _paired(features: Tensor, labels: Tensor, tokens: Tokens) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of features and their answers; an answer for each token makes each token a row."""
    if labels.dim() == 2 and labels.shape[:2] == features.shape[:2]:
        x, y = features.flatten(0, 1), labels.flatten()
    elif labels.dim() == 1:
        x = features.mean(dim=1) if tokens == "mean" else features.flatten(1) if tokens == "all" else features[:, tokens]
        y = labels
    else:
        raise RequestError(f"answers of shape {tuple(labels.shape)} fit neither samples nor tokens {tuple(features.shape[:2])}.")
    keep = y >= 0  # what is not asked for is marked by a negative number
    return x[keep].double().cpu().numpy(), y[keep].cpu().numpy()
