"""Finding the attention of a model: which modules can be patched, how, and which would be missed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.calls import FUNCTION, is_function
from eureka.patching.code import read
from eureka.patching.seat import SLOT
from eureka.patching.swapped import base_class

Kind = Literal["operator", "multihead", "hugging_face", "call"]

INTERFACE = "ALL_ATTENTION_FUNCTIONS"
CALLED = (FUNCTION, "multi_head_attention_forward")
PACKAGES = (
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "memory_efficient_attention",
    "flex_attention",
    "_native_multi_head_attention",
)
"""Kernels of other packages: they take no operator, and a model that uses them must not look patched."""
PROJECTION = re.compile(
    r"(to_|w_?|c_|in_)?(q|qkv|qk|kv|query|key|value|query_key_value|attn)(_?(proj|lin|linear|layer|net|weight))?$", re.I
)
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
HEAD_DIM = ("head_dim", "attention_head_size", "key_value_proj_dim", "dim_head", "head_size")


@dataclass
class Site:
    """One place where a model attends."""

    index: int
    name: str
    """The module's name in the model."""
    kind: Kind
    module: nn.Module = field(repr=False)
    slot: str = field(default=SLOT, repr=False)
    """The submodule that holds the operator."""
    methods: tuple[str, ...] = field(default=(), repr=False)
    """Methods that call the function, for the kind `call`."""

    @property
    def operator(self) -> Operator | None:
        """What is in force there now; None for the model's own attention."""
        operator = self.module._modules.get(self.slot)
        return operator if isinstance(operator, Operator) else None

    @property
    def heads(self) -> int | None:
        return _number(self.module, HEADS)

    @property
    def head_dim(self) -> int | None:
        found = _number(self.module, HEAD_DIM)
        width = _number(self.module, ("embed_dim", "hidden_size", "dim", "n_embd", "all_head_size", "inner_dim"))
        if found is None and self.kind == "operator" and isinstance(out := getattr(self.module, "out", None), nn.Linear):
            width = out.in_features
        return width // self.heads if found is None and width and self.heads else found


@dataclass
class Found:
    """What a search gave."""

    sites: list[Site]
    refused: list[tuple[str, str]]
    """Modules that attend in a way that cannot be swapped: name and reason."""
    searched: int


def find_sites(model: nn.Module, also: tuple[str, ...] = ()) -> Found:
    """All sites of a model in the order of its modules; `also` names modules that are sites although their code hides it."""
    named = dict(model.named_modules())
    for name in also:
        if name not in named:
            raise RequestError(f"sites: {type(model).__name__} has no module {name!r}.")
    sites: list[Site] = []
    refused: list[tuple[str, str]] = []
    for name, module in named.items():
        if isinstance(module, Operator):
            continue
        found = list(_sites_at(name, module, name in also))
        sites += found
        if not found and (reason := _missed(module)):
            refused.append((name or type(module).__name__, reason))
    for index, site in enumerate(sites):
        site.index = index
    return Found(sites, refused, len(named))


def _sites_at(name: str, module: nn.Module, forced: bool) -> Iterator[Site]:
    cls = base_class(module)
    for slot, child in module.named_children():
        if isinstance(child, Operator) and slot != SLOT:
            yield Site(0, name, "operator", module, slot)
    if isinstance(module, nn.MultiheadAttention) and cls.forward is nn.MultiheadAttention.forward:
        yield Site(0, name, "multihead", module)
        return
    if cls.__module__.startswith("torch."):
        return
    reading = read(cls)
    pretrained = any(base.__name__ == "PreTrainedModel" for base in cls.__mro__)
    if reading.mentioning(INTERFACE) and "config" in module.__dict__ and not pretrained:
        yield Site(0, name, "hugging_face", module)
        return
    mentioned = reading.mentioning(*CALLED)
    held = any(is_function(value) for value in module.__dict__.values())
    if (forced or held or mentioned) and not pretrained:
        yield Site(0, name, "call", module, methods=_wrapped(cls, mentioned, forced or held))


def _wrapped(cls: Any, mentioned: tuple[str, ...], forward: bool) -> tuple[str, ...]:
    """The methods to run under the detour: those that call the function, and forward when it does so by something else."""
    plain = [name for name in mentioned if not name.startswith("__") and inspect.isfunction(inspect.getattr_static(cls, name))]
    return tuple(dict.fromkeys([*plain, *(["forward"] if forward or not plain else [])]))


def _missed(module: nn.Module) -> str | None:
    """Why a module that is no site looks as if it should be one."""
    cls = base_class(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "attends in code compiled by torch.jit, which takes no operator" if "softmax" in _graph(module) else None
    if cls.__module__.startswith("torch."):
        return None
    reading = read(cls)
    if any(base.__name__ == "PreTrainedModel" for base in cls.__mro__):
        return None
    for package in PACKAGES:
        if reading.mentioning(package):
            return f"calls {package}, which takes no operator"
    children = dict(module.named_children())
    projects = any(PROJECTION.match(name) for name in children)
    softens = bool(reading.mentioning("softmax", "Softmax")) or any(isinstance(c, nn.Softmax) for c in children.values())
    if projects and softens and len(list(module.parameters())):
        return "computes the softmax of attention by itself"
    return None


def _graph(module: torch.jit.ScriptModule) -> str:
    return str(getattr(module, "inlined_graph", "")).replace("scaled_dot_product_attention", "softmax")


def _number(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these attributes that is a whole number, on the module or on its config."""
    places: list[Any] = [module, module.__dict__.get("config")]
    for place in places:
        for name in names:
            value = getattr(place, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None
