"""Find the places where a model attends, select some of them, and tell which modules cannot be patched."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import nn

from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.bytecode import read
from eureka.patching.sdpa import FUNCTION, is_function
from eureka.patching.slot import LOCK, SUBMODULE, base_class
from eureka.patching.written_out import SOFTENING, by_hand, is_named, is_written_out, unfollowed

Kind = Literal["operator", "multihead", "hugging_face", "call", "by_hand"]

INTERFACE = "ALL_ATTENTION_FUNCTIONS"
CALLED = (FUNCTION, "multi_head_attention_forward", "dispatch_attention_fn")
"""Functions that attend; the last one, of diffusers, calls the first unless another kernel is chosen."""
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
    submodule: str = field(default=SUBMODULE, repr=False)
    """The name of the submodule that holds the operator."""
    around: nn.Module | None = field(default=None, repr=False)
    """The nearest module above it that has a matrix, for one that has none of its own."""
    methods: tuple[str, ...] = field(default=(), repr=False)
    """Methods that call F.scaled_dot_product_attention, for the kind `call`."""

    @property
    def other_way(self) -> str | None:
        """Where the code of the site takes a softmax that is not followed, so that a branch may avoid the operator."""
        return by_hand(self.module) if self.kind == "call" and not is_written_out(self.module) else None

    @property
    def operator(self) -> Operator | None:
        """The operator in force; None for the model's own attention."""
        operator = self.module._modules.get(self.submodule)
        return operator if isinstance(operator, Operator) else None

    @property
    def owner(self) -> nn.Module:
        """The module with its projections: itself, or the one around it if it gets q, k and v and has no matrix of its own."""
        return self.module if self.around is None else self.around

    @property
    def heads(self) -> int | None:
        return _number(self.module, HEADS) or _number(self.owner, HEADS)

    @property
    def head_dim(self) -> int | None:
        found = _number(self.module, HEAD_DIM)
        width = _number(self.owner, ("embed_dim", "hidden_size", "dim", "n_embd", "all_head_size", "inner_dim"))
        if found is None and self.kind == "operator" and isinstance(out := getattr(self.module, "out", None), nn.Linear):
            width = out.in_features
        return width // self.heads if found is None and width and self.heads else found


Layers = int | str | Callable[[Site], bool] | Iterable["int | str | Callable[[Site], bool]"]
"""Some of the sites: an index, a pattern of names, a predicate, or several of these."""


@dataclass
class Found:
    """The result of a search."""

    sites: list[Site]
    refused: list[tuple[str, str]]
    """Modules that attend in a way that cannot be swapped: name and reason."""
    searched: int
    """The number of modules that were searched."""


def find_sites(model: nn.Module, also: tuple[str, ...] = ()) -> Found:
    """All sites of a model in the order of its modules; `also` names modules that are sites although their code hides it."""
    with LOCK:
        return _find_sites(model, also)


def _find_sites(model: nn.Module, also: tuple[str, ...]) -> Found:
    named = dict(model.named_modules())
    for name in also:
        if name not in named:
            raise RequestError(f"sites: {type(model).__name__} has no module {name!r}.")
    sites: list[Site] = []
    refused: list[tuple[str, str]] = []
    guessed: list[Site] = []
    for name, module in named.items():
        if isinstance(module, Operator):
            continue
        found = list(_sites_at(name, module, name in also))
        if found and not _has_matrix(module):
            for site in found:
                site.around = _around(named, name)
        guessed += [site for site in found if site.kind == "by_hand" and not is_named(module)]
        sites += found
        if not found and (reason := _missed(module)):
            refused.append((name or type(module).__name__, reason))
    if len(guessed) < len(sites):  # variables called q and k tell less than names of layers: beside surer sites they do not count
        sites = [site for site in sites if site not in guessed]
    for index, site in enumerate(sites):
        site.index = index
    return Found(sites, refused, len(named))


def _around(named: dict[str, nn.Module], name: str) -> nn.Module | None:
    """The nearest module above that has a matrix and is no mere list."""
    while name:
        name = name.rpartition(".")[0]
        if _has_matrix(named[name]) and not isinstance(named[name], (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            return named[name]
    return None


def _has_matrix(module: nn.Module) -> bool:
    return any(parameter.dim() > 1 for parameter in module.parameters())


def select_sites(sites: Sequence[Site], layers: Layers | None) -> list[Site]:
    """The sites that `layers` names, in the order of the model; every part of it must name at least one."""
    if layers is None:
        return list(sites)
    parts = [layers] if isinstance(layers, (int, str)) or callable(layers) else list(layers)
    chosen: set[int] = set()
    for part in parts:
        found = _matching(sites, part)
        if not found:
            names = ", ".join(f"{site.index} {site.name}" for site in sites[:6])
            raise RequestError(f"layers: {part!r} matches none of the {len(sites)} sites ({names}{', …' * (len(sites) > 6)}).")
        chosen |= found
    if not chosen:
        raise RequestError("layers names nothing; leave it out to patch every site.")
    return [site for site in sites if site.index in chosen]


def _matching(sites: Sequence[Site], part: int | str | Callable[[Site], bool]) -> set[int]:
    if isinstance(part, bool) or not (isinstance(part, (int, str)) or callable(part)):
        raise RequestError(f"layers: an index, a pattern of names or a function of the site is expected, not {part!r}.")
    if isinstance(part, int):
        return {part % len(sites)} if -len(sites) <= part < len(sites) else set()
    if isinstance(part, str):
        return {
            site.index for site in sites if fnmatchcase(site.name, part) or fnmatchcase(f"{site.name}.{site.submodule}", part)
        }
    return {site.index for site in sites if part(site)}


def _sites_at(name: str, module: nn.Module, forced: bool) -> Iterator[Site]:
    cls = base_class(module)
    for key, child in module.named_children():
        if isinstance(child, Operator) and key != SUBMODULE:
            yield Site(0, name, "operator", module, key)
    if isinstance(module, nn.MultiheadAttention) and cls.forward is nn.MultiheadAttention.forward:
        yield Site(0, name, "multihead", module)
        return
    if cls.__module__.startswith("torch.") or unfollowed(cls) is not None:
        return
    reading = read(cls)
    pretrained = any(base.__name__ == "PreTrainedModel" for base in cls.__mro__)
    if reading.mentioning(INTERFACE) and "config" in module.__dict__ and not pretrained:
        yield Site(0, name, "hugging_face", module)
        return
    mentioned = reading.mentioning(*CALLED)
    held = any(is_function(value) for value in module.__dict__.values())
    held = held or any(read(helper).mentioning(*CALLED) for helper in _helpers(module))
    if (forced or held or mentioned) and not pretrained:
        yield Site(0, name, "call", module, methods=_wrapped(cls, mentioned, forced or held))
    elif not pretrained and is_written_out(module) and not _package(module):
        yield Site(0, name, "by_hand", module, methods=_wrapped(cls, reading.mentioning(*SOFTENING), forward=True))


def _wrapped(cls: Any, mentioned: tuple[str, ...], forward: bool) -> tuple[str, ...]:
    """The methods to run under the detour: those that call the function, and forward if the call cannot be placed."""
    plain = [name for name in mentioned if not name.startswith("__") and inspect.isfunction(inspect.getattr_static(cls, name))]
    return tuple(dict.fromkeys([*plain, *(["forward"] if forward or not plain else [])]))


def _missed(module: nn.Module) -> str | None:
    """Why a module that is no site computes attention all the same; None if it does not seem to."""
    cls = base_class(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "attends in code compiled by torch.jit, which takes no operator" if "softmax" in _graph(module) else None
    if cls.__module__.startswith("torch."):
        return None
    if any(base.__name__ == "PreTrainedModel" for base in cls.__mro__):
        return None
    if (package := _package(module)) is not None:
        return f"calls {package}, which takes no operator"
    if (what := unfollowed(cls)) is not None:
        return f"{_softmax_of(module)}, {what}"
    return None


def _softmax_of(module: nn.Module) -> str:
    where = by_hand(module)
    return f"computes the softmax of attention by itself{f' ({where})' if where else ''}"


def _package(module: nn.Module) -> str | None:
    """The kernel of another package that a module calls; methods that only choose one, as those of diffusers, do not count."""
    for reading in (read(base_class(module)), *map(read, _helpers(module))):
        for package in PACKAGES:
            if any(not method.startswith(("set_", "enable_", "disable_")) for method in reading.mentioning(package)):
                return package
    return None


def _helpers(module: nn.Module) -> list[Any]:
    """The classes of objects that a module holds and calls in its place, such as the processors of diffusers."""
    kinds = (type(value) for value in module.__dict__.values() if callable(value) and not isinstance(value, (nn.Module, type)))
    return [
        kind for kind in kinds if "__call__" in vars(kind) and not kind.__module__.startswith(("torch", "builtins", "functools"))
    ]


def _graph(module: torch.jit.ScriptModule) -> str:
    return str(getattr(module, "inlined_graph", "")).replace("scaled_dot_product_attention", "softmax")


def _number(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these attributes that is an integer, on the module or on its config."""
    places: list[Any] = [module, module.__dict__.get("config")]
    for place in places:
        for name in names:
            value = getattr(place, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None
