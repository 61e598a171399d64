"""Hugging Face models, through AttentionInterface: an attention module asks its config which function to call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.mask import Mask
from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.masks import biased, mask_of, rescaled
from eureka.patching.sdpa import mark_reached, running
from eureka.patching.slot import SUBMODULE, base_class, observe

NAME = "eureka"
"""Our entry in AttentionInterface and in AttentionMaskInterface."""
REFUSED = {"softcap": "a soft cap on the logits", "s_aux": "attention sinks", "cache": "a paged cache"}
"""Arguments of an attention function that no operator supports."""


class ConfigView:
    """The config of a model with our function as its attention implementation.

    The config itself is shared by all layers, and by other models made from it, so it is not changed.
    """

    def __init__(self, config: Any) -> None:
        self.__dict__["_config"] = config

    @property
    def _attn_implementation(self) -> str:
        return NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_config"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_config"], name, value)


class HuggingFaceSite(nn.Module):
    """An attention module of transformers whose config names our function."""

    @staticmethod
    def prepare() -> None:
        register()

    @property
    def config(self) -> Any:
        return ConfigView(self.__dict__["config"])

    @config.setter
    def config(self, config: Any) -> None:
        self.__dict__["config"] = config

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return super().forward(*args, **kwargs)
        with running(self, takes_calls=False):
            return super().forward(*args, **kwargs)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that AttentionInterface calls: (B, H, Q, D), (B, Hk, K, D) → (B, Q, H, D), and the weights if wanted."""
    operator: Operator | None = getattr(module, SUBMODULE, None)
    for name, what in REFUSED.items():
        if operator is not None and kwargs.get(name) is not None:
            raise RequestError(f"{type(module).__name__} uses {what}, which no operator here knows; leave it out with layers=….")
    q, k, v, mask = _parts(module, query, key, value, attention_mask, is_causal, position_bias)
    q = rescaled(q, scaling)
    observe(module, SUBMODULE, q, k, v, mask, operator)
    if not torch.compiler.is_compiling():
        mark_reached(module)
    if operator is None:  # only observed
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, "position_bias": position_bias}
        own = {name: argument for name, argument in given.items() if argument is not None}
        return own_function(module)(module, query, key, value, attention_mask, **own, **kwargs)  # type: ignore[no-any-return]
    wanted = kwargs.get("output_attentions", getattr(module.config, "output_attentions", False))
    return operator(q, k, v, mask, dropout).transpose(1, 2).contiguous(), operator.weights(q, k, mask) if wanted else None


def _parts(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
    position_bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """As in transformers' own sdpa function, the module's causal flag counts if there is no mask."""
    queries, keys = q.shape[2], k.shape[2]
    if mask is not None and mask.dim() != 4:
        raise RequestError(
            f"{type(module).__name__} was given a mask of shape {tuple(mask.shape)}, made for flash attention;"
            " call model.set_attn_implementation('sdpa') first."
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(queries > 1 and mask is None and causal)
    if causal and keys > queries:  # an empty static cache: keys beyond the queries are not written yet
        k, v, keys = k[:, :, :queries], v[:, :, :queries], queries
        position_bias = None if position_bias is None else position_bias[..., :queries]
    kind = mask_of(mask, causal)
    return q, k, v, kind if position_bias is None else biased(kind, position_bias, queries, keys)


def own_function(module: nn.Module) -> Callable[..., Any]:
    """The function that the unpatched module calls."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = module.__dict__["config"]._attn_implementation
    for cls in base_class(module).__mro__:
        namespace = vars(sys.modules.get(cls.__module__, object))
        if "ALL_ATTENTION_FUNCTIONS" in namespace:
            functions, eager = namespace["ALL_ATTENTION_FUNCTIONS"], namespace.get("eager_attention_forward")
            return functions.get_interface(name, eager)  # type: ignore[no-any-return]
    return ALL_ATTENTION_FUNCTIONS[name]  # type: ignore[no-any-return]


@cache
def register() -> None:
    """Make our function known to transformers, with the masks of its sdpa function."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
