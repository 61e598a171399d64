"""Find the weights W_Q, W_K, W_V and W_O of a site, and how large the gradients of the first three are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from eureka.patching.attach import Site, find_sites

APART = {
    "q": (
        *("query", "q_proj", "q_lin", "q", "to_q", "wq", "Wq", "w_q", "q_linear", "q_attn", "query_proj"),
        *("W_q", "W_Q", "w_qs", "queries", "toqueries", "to_queries", "linear_q", "fc_q", "query_layer", "q_b_proj"),
    ),
    "k": (
        *("key", "k_proj", "k_lin", "k", "to_k", "wk", "Wk", "w_k", "k_linear", "key_proj"),
        *("W_k", "W_K", "w_ks", "keys", "tokeys", "to_keys", "linear_k", "fc_k", "key_layer"),
    ),
    "v": (
        *("value", "v_proj", "v_lin", "v", "to_v", "wv", "Wv", "w_v", "v_linear", "value_proj"),
        *("W_v", "W_V", "w_vs", "values", "tovalues", "to_values", "linear_v", "fc_v", "value_layer"),
    ),
}
"""Usual names of three separate projections."""
TOGETHER = ("qkv", "c_attn", "in_proj", "Wqkv", "wqkv", "qkv_proj", "to_qkv", "in_proj_qkv")
"""Usual names of one projection: all of q, then all of k, then all of v."""
KEYS_AND_VALUES = ("kv", "to_kv", "kv_proj", "Wkv")
"""Names of one projection beside that of the queries: all of k, then all of v."""
INTERLEAVED = ("query_key_value",)
"""Names of one projection that holds q, k and v of the first head, then those of the second, as in GPT-NeoX and BLOOM; where
query heads share keys, as in Falcon, all that share the first key, then that key and its value."""

OUT = ("out", "out_proj", "o_proj", "c_proj", "dense", "proj", "to_out", "wo", "w_o", "out_lin", "o")
"""Usual names of the projection W_O behind the heads."""
BESIDE = "output.dense"
"""Where BERT and its relatives keep it: beside the module that attends."""


class Heads(NamedTuple):
    """What a call of attention says about its heads."""

    queries: int
    """How many query heads there are."""
    groups: int
    """How many key heads; each is for as many query heads."""
    size: int
    """Features of a query and of a key."""
    values: int
    """Features of all value heads together."""


class Projection(NamedTuple):
    """W_Q, W_K, W_V or W_O: a parameter, and a function that takes its part of a tensor of that shape, as (outputs, inputs)."""

    parameter: nn.Parameter
    rows: Callable[[Tensor], Tensor]
    bias: nn.Parameter | None = None
    bias_rows: Callable[[Tensor], Tensor] = lambda b: b
    """Takes the part of a tensor in the shape of the bias, as (outputs,)."""

    def places(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The parameter, and the bias if there is one; each with the numbers of its own elements, head after head."""
        parts = [(self.parameter, self.rows), *([(self.bias, self.bias_rows)] if self.bias is not None else [])]
        return [(one, rows(torch.arange(one.numel(), device=one.device).view(one.shape))) for one, rows in parts]

    def gradient(self, heads: int | None) -> list[float] | None:
        """Mean |grad| of each head, or of all together if the heads are not known; None without a gradient."""
        if self.parameter.grad is None:
            return None
        size = self.rows(self.parameter.grad.detach()).abs().float()
        groups = heads if heads and size.shape[0] % heads == 0 else 1
        means: list[float] = size.reshape(groups, -1).mean(dim=1).tolist()
        return means


def find_projections(model: nn.Module) -> list[dict[str, Projection]]:
    """The projections of every site of a model."""
    return [projections(site) for site in find_sites(model).sites]


def projections(site: Site, heads: Heads | None = None) -> dict[str, Projection]:
    """The projections of a site by "q", "k" and "v"; those that cannot be found are left out.

    How one layer is split is told by a call's heads, or else by what the module says about them.
    """
    module = site.owner
    if isinstance(module, nn.MultiheadAttention):
        return _of_multihead(module)
    named = {letter: _first(module, names) for letter, names in APART.items()}
    apart = {letter: _whole(layer) for letter, layer in named.items() if layer is not None}
    if len(apart) == 3:
        return apart
    for name in (*TOGETHER, *INTERLEAVED, *(KEYS_AND_VALUES if "q" in apart else ())):
        layer = _first(module, (name,))
        if layer is not None:
            letters = "kv" if "q" in apart else "qkv"
            parts = _interleaved(layer, site, heads) if name in INTERLEAVED else _stacked(layer, site, letters, heads)
            return {**parts, **apart}
    return apart


def fused_layer(site: Site) -> nn.Module | None:
    """The layer that makes q, k and v of a site at once; None where there is none by a usual name."""
    return _first(site.owner, (*TOGETHER, *INTERLEAVED))


def picked(layer: nn.Module, outputs: Tensor) -> Projection:
    """Some of the outputs of a layer, in their order."""
    turn = _as_rows(layer)
    return _projection(layer, lambda g: turn(g)[outputs])


def apart(site: Site, letter: str) -> bool:
    """Whether a layer makes q, k or v of a site alone, by its name."""
    return isinstance(site.owner, nn.MultiheadAttention) or _first(site.owner, APART[letter]) is not None


def why_missing(site: Site, letter: str) -> str:
    """What was looked for as W_Q or W_K of a site and not found, as part of a sentence."""
    layer, name = fused_layer(site), f"W_{letter.upper()}"
    held = (*APART[letter], *TOGETHER, *INTERLEAVED, *(KEYS_AND_VALUES if letter == "k" else ()))
    children = [child for child in held if child in site.owner._modules]
    if without := [child for child in children if _first(site.owner, (child,)) is None]:
        return f"makes {letter} by {without[0]}, whose weight is no parameter (it is computed anew, or quantised)"
    if layer is not None:
        return f"has one layer of {_as_rows(layer)(_weight(layer)).shape[0]} outputs for q, k and v, which do not fit its heads"
    first, together = APART[letter][:3], held[len(APART[letter]) :]
    return (
        f"has no layer for {name} by a usual name ({', '.join(first)}, …; or as a part of {', '.join(together[:3])}, …), and no"
        f" matrix whose rows make the features of {letter}"
    )


def output_projection(model: nn.Module, site: Site) -> Projection | None:
    """W_O of a site; None where it cannot be found."""
    layer = _first(site.owner, OUT)
    if layer is None:
        around = model.get_submodule(site.name.rpartition(".")[0])
        layer = dict(around.named_modules()).get(BESIDE)
    return _whole(layer) if layer is not None else None


def _of_multihead(module: nn.MultiheadAttention) -> dict[str, Projection]:
    parts, bias = [_part(i, 3) for i in range(3)], module.in_proj_bias
    if module._qkv_same_embed_dim:
        return {letter: Projection(module.in_proj_weight, part, bias, part) for letter, part in zip("qkv", parts, strict=True)}
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    return {
        letter: Projection(weight, lambda g: g, bias, part) for letter, weight, part in zip("qkv", weights, parts, strict=True)
    }


def _first(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    for name in names:
        child = module._modules.get(name)
        if isinstance(getattr(child, "weight", None), nn.Parameter):
            return child
    return None


def _as_rows(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that turns a weight to (outputs, inputs): the Conv1D of GPT-2 keeps it the other way round."""
    return (lambda g: g.t()) if type(layer).__name__ == "Conv1D" else (lambda g: g)


def _weight(layer: nn.Module) -> nn.Parameter:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _projection(layer: nn.Module, rows: Callable[[Tensor], Tensor]) -> Projection:
    """The part of a layer's weight and bias that `rows` takes; it sees the bias as a weight of one input."""
    bias, axis = getattr(layer, "bias", None), 0 if type(layer).__name__ == "Conv1D" else 1
    found = bias if isinstance(bias, nn.Parameter) else None
    return Projection(_weight(layer), rows, found, lambda b: rows(b.unsqueeze(axis))[:, 0])


def _whole(layer: nn.Module) -> Projection:
    return _projection(layer, _as_rows(layer))


def _part(index: int, parts: int) -> Callable[[Tensor], Tensor]:
    return lambda g: g.chunk(parts)[index]


def _stacked(layer: nn.Module, site: Site, letters: str, heads: Heads | None) -> dict[str, Projection]:
    """Blocks one after another; if there are fewer key heads than query heads, the first block is larger."""
    turn = _as_rows(layer)
    outputs = turn(_weight(layer)).shape[0]
    sizes = _seen_sizes(heads, letters, outputs) or _named_sizes(site, letters, outputs)
    return {letter: _projection(layer, _block(turn, sizes, i)) for i, letter in enumerate(letters[: len(sizes)])}


def _seen_sizes(heads: Heads | None, letters: str, outputs: int) -> list[int]:
    """The rows of each block, as a call says; nothing if they are not all the rows."""
    if heads is None:
        return []
    sizes = [heads.queries * heads.size, heads.groups * heads.size, heads.values][-len(letters) :]
    return sizes if sum(sizes) == outputs else []


def _named_sizes(site: Site, letters: str, outputs: int) -> list[int]:
    """The rows of each block, as the module says, or alike; nothing if they do not come out even."""
    parts = len(letters)
    queries = site.heads * site.head_dim if letters == "qkv" and site.heads and site.head_dim else outputs // parts
    rest = outputs - queries if letters == "qkv" else outputs
    return [] if rest <= 0 or rest % 2 else [queries, rest // 2, rest // 2][-parts:]


def _block(turn: Callable[[Tensor], Tensor], sizes: list[int], index: int) -> Callable[[Tensor], Tensor]:
    start = sum(sizes[:index])
    return lambda g: turn(g)[start : start + sizes[index]]


def _interleaved(layer: nn.Module, site: Site, heads: Heads | None) -> dict[str, Projection]:
    queries, groups = (site.heads, site.heads) if heads is None else (heads.queries, heads.groups)
    if not queries or not groups or _weight(layer).shape[0] % (queries + 2 * groups):
        return {}
    each = queries // groups
    parts = {"q": slice(each), "k": slice(each, each + 1), "v": slice(each + 1, each + 2)}
    return {letter: _projection(layer, _of_groups(groups, each + 2, part)) for letter, part in parts.items()}


def _of_groups(groups: int, heads: int, part: slice) -> Callable[[Tensor], Tensor]:
    return lambda g: g.reshape(groups, heads, -1, g.shape[-1])[:, part].reshape(-1, g.shape[-1])
