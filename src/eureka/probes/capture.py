"""Keep the attention calls of a forward pass, for a closer look: q, k, v, mask and operator, or the weights as a map."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from eureka.attention.operator import Operator
from eureka.attention.softmax import Softmax
from eureka.errors import EurekaError, RequestError
from eureka.patching.attach import AttentionCall, Layers, Site, attached, find_sites, select_sites
from eureka.random_state import kept_random_state

LARGEST_MAP = 100
"""Tokens; attention over more is neither kept nor drawn."""


def check_model(model: Any) -> None:
    """Raise unless it is a module."""
    if not isinstance(model, nn.Module):
        raise RequestError(f"the model is a torch.nn.Module, not {named_type(model)}; give the module itself.")


def named_type(value: Any) -> str:
    """What a value is, in a few words.

    >>> named_type(torch.zeros(2, 3)), named_type([1, 2]), named_type({"x": 1}), named_type(None), named_type(3.0)
    ('a tensor of shape (2, 3)', 'a list of 2', "a mapping of 'x'", 'None', 'an object of type float')
    """
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(repr, value))}" if value else "an empty mapping"
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, (list, tuple)) else f"an object of type {name}"


def sites_of(model: nn.Module, layers: Layers | None) -> list[Site]:
    """The sites that `layers` names; an error if the model has none."""
    check_model(model)
    found = find_sites(model)
    if not found.sites:
        raise RequestError(f"no attention found in {type(model).__name__} ({found.searched} modules searched).")
    return select_sites(found.sites, layers)


def attends(model: nn.Module) -> bool:
    """Whether a model has any site."""
    return bool(find_sites(model).sites)


@contextmanager
def capture(model: nn.Module, sites: list[Site]) -> Iterator[dict[int, list[AttentionCall]]]:
    """While inside, keep every attention call of these sites, by the index of the site."""
    calls = {site.index: list[AttentionCall]() for site in sites}
    with attached(model, sites, observer=lambda site, call: calls[site.index].append(call)):
        yield calls


def operator_of(call: AttentionCall) -> Operator:
    """The operator that computed a call; plain softmax if the model used its own attention."""
    return Softmax() if call.operator is None else call.operator


def run_model(model: nn.Module, inputs: Any) -> Any:
    """model(inputs), or model(**inputs) for a mapping, as Hugging Face wants it; what the model raises is said in a sentence.

    The model gets copies: one that adds in place leaves the batch as it was.
    """
    by_keyword = isinstance(inputs, Mapping)
    try:
        return model(**{key: copied(value) for key, value in inputs.items()}) if by_keyword else model(copied(inputs))
    except EurekaError:
        raise
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise RequestError(
            f"a pass of {type(model).__name__} over these inputs failed ({type(error).__name__}: {line}); {named_type(inputs)}"
            f" was passed {'by keyword' if by_keyword else 'as the only argument'}: give what its forward takes, a tensor or a"
            " mapping of keywords."
        ) from error


def copied(value: Any) -> Any:
    """The same with copies of all tensors, and of objects that may hold some, as the caches of Hugging Face do."""
    return tree_map(_copied, value)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, (nn.Module, str, int, float, type(None))) or callable(value):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # it cannot be copied, and is passed on as it is
        return value


def run_alike(model: nn.Module, inputs: Any) -> Any:
    """`run_model` from one and the same random state."""
    with same_random_state(model):
        return run_model(model, inputs)


@contextmanager
def same_random_state(model: nn.Module) -> Iterator[None]:
    """Inside, random numbers begin alike, so that a model that draws (ViTMAE its mask) draws the same each time."""
    cuda = sorted({tensor.get_device() for tensor in model.parameters() if tensor.is_cuda})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(0)
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode; afterwards each module has its own mode again, and random numbers go on as before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with kept_random_state(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def left_alone(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards modes, buffers and random states are what they were."""
    buffers = [(module._buffers, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    copies = [None if buffer is None else buffer.clone() for _, _, buffer in buffers]
    try:
        with eval_mode(model):
            yield
    finally:
        for (own, name, buffer), copy in zip(buffers, copies, strict=True):
            own[name] = buffer
            _put_back(buffer, copy)


def _put_back(buffer: Tensor | None, copy: Tensor | None) -> None:
    if buffer is not None and copy is not None and not torch.equal(buffer, copy):
        buffer.copy_(copy)


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, batch norms do as in training: fresh running statistics say nothing of the data. `left_alone` puts them back."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            module.train()
    yield


@torch.no_grad()
def attention_maps(model: nn.Module, inputs: Any) -> Tensor | None:
    """The attention weights of the first sample in eval mode, (layers, heads, queries, keys).

    None if there are more than 100 tokens, or if layers differ in tokens or heads, so that they do not fit one array.

    >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> attention_maps(layer, torch.randn(1, 5, 8)).sum(dim=-1).shape
    torch.Size([1, 2, 5])
    """
    with eval_mode(model), capture(model, sites_of(model, None)) as captured:
        run_model(model, inputs)
    calls = [found[0] for found in captured.values() if found]
    shapes = {(call.q.shape[1], call.q.shape[2], call.k.shape[2]) for call in calls}
    if len(shapes) != 1 or max(next(iter(shapes))[1:]) > LARGEST_MAP:
        return None
    return torch.stack([operator_of(call).weights(call.q[:1], call.k[:1], call.mask)[0] for call in calls])
