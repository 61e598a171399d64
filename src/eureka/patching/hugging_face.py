"""Hugging Face models, through AttentionInterface: an attention module asks its config which function to call."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.mask import Mask
from eureka.attention.operator import Extras, Operator, SoftmaxFamily
from eureka.errors import RequestError
from eureka.patching.bytecode import read
from eureka.patching.masks import biased, is_empty, mask_of, rescaled, same_batch
from eureka.patching.sdpa import mark_reached, running
from eureka.patching.selfcheck import PLAIN, due, verify
from eureka.patching.slot import SUBMODULE, base_class, observe

NAME, NAME_EAGER = "eureka", "eureka_eager"
"""Our entries in AttentionInterface and in AttentionMaskInterface; the masks of the second are those of eager attention."""


_recording: Any = None
"""Which outputs transformers is recording, by name."""


class ConfigView:
    """The config of a model with our function as its attention implementation.

    The config itself is shared by all layers, and by other models made from it, so it is not changed.
    """

    def __init__(self, config: Any) -> None:
        self.__dict__["_config"] = config

    @property
    def _attn_implementation(self) -> str:
        return NAME_EAGER if self.__dict__["_config"]._attn_implementation == "eager" else NAME

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

    def own(dropout: float = dropout, kwargs: dict[str, Any] = kwargs) -> tuple[Tensor, Tensor | None]:
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, "position_bias": position_bias}
        known = {name: argument for name, argument in given.items() if argument is not None}
        return own_function(module)(module, query, key, value, attention_mask, **known, **kwargs)  # type: ignore[no-any-return]

    if not torch.compiler.is_compiling():
        mark_reached(module)
    if is_empty(query, key):
        return own()
    if operator is not None and kwargs.get("cache") is not None:
        raise RequestError(f"{type(module).__name__} uses a paged cache, which no operator here knows.")
    if operator is None and not _is_known(attention_mask):
        return own()  # only observed, and the implementation was changed meanwhile
    q, k, v, mask = _parts(module, query, key, value, attention_mask, is_causal, position_bias)
    q = rescaled(q, scaling)
    observe(module, SUBMODULE, q, k, v, mask, operator)
    if operator is None:  # only observed
        return own()
    extras = Extras(kwargs.get("softcap"), kwargs.get("s_aux"))
    if due(module, SUBMODULE) is not None:
        quiet = {name: value for name, value in kwargs.items() if name != "output_attentions"}
        verify(module, SUBMODULE, lambda: own(0.0, quiet)[0], lambda: _mixed(PLAIN, q, k, v, mask, 0.0, extras, wanted=False)[0])
    return _mixed(operator, q, k, v, mask, dropout, extras, wanted=_wants_weights(module, kwargs))


def _mixed(
    operator: Operator, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, extras: Extras, *, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    weights: Tensor | None = None
    if extras.softcap is not None or extras.sinks is not None:
        if not isinstance(operator, SoftmaxFamily):
            raise RequestError(f"{type(operator).__name__} knows no {extras.name}: only operators of the softmax family do.")
        mixed, weights = operator.with_extras(q, k, v, mask, dropout, extras)
    elif wanted:
        mixed, weights = operator.with_weights(q, k, v, mask, dropout)
    else:
        mixed = operator(q, k, v, mask, dropout)
    return mixed.transpose(1, 2).contiguous(), weights


def _wants_weights(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Whether somebody asked for the weights: by an argument, in the config, or by recording the outputs of this module."""
    if kwargs.get("output_attentions", getattr(module.config, "output_attentions", False)):
        return True
    recorded = None if _recording is None else _recording.get()
    return recorded is not None and any("attentions" in name for name in recorded)


def _is_known(mask: Tensor | None) -> bool:
    return mask is None or (isinstance(mask, Tensor) and mask.dim() == 4)


def _parts(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
    position_bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """As in transformers' own sdpa function, the module's causal flag counts if there is no mask; in its eager one, never."""
    queries, keys = q.shape[2], k.shape[2]
    if not _is_known(mask):
        what = (
            f"of shape {tuple(mask.shape)}, made for flash attention" if isinstance(mask, Tensor) else "made for flex attention"
        )
        raise RequestError(
            f"{type(module).__name__} was given a mask {what}; call model.set_attn_implementation('sdpa') before it runs."
        )
    q, k, v = same_batch(q, k, v)
    causal = False
    if mask is None and module.__dict__["config"]._attn_implementation != "eager":
        causal = bool(queries > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal))
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
            return namespace["ALL_ATTENTION_FUNCTIONS"].get_interface(name, _eager(cls, namespace))  # type: ignore[no-any-return]
    return ALL_ATTENTION_FUNCTIONS[name]  # type: ignore[no-any-return]


def _eager(cls: Any, namespace: Mapping[str, Any]) -> Any:
    """The eager function that the code of a class names; some models call theirs by another name."""
    used = {name for names in read(cls).methods.values() for name in names if name.endswith("eager_attention_forward")}
    return next((namespace[name] for name in sorted(used) if name in namespace), namespace.get("eager_attention_forward"))


@cache
def register() -> None:
    """Make our function known to transformers, with the masks of its sdpa function and of its eager one."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask, sdpa_mask

    global _recording
    with contextlib.suppress(ImportError):  # an older transformers passes output_attentions on
        from transformers.utils.output_capturing import _active_collector

        _recording = _active_collector
    for name, masks in ((NAME, sdpa_mask), (NAME_EAGER, eager_mask)):
        AttentionInterface.register(name, attend)
        AttentionMaskInterface.register(name, masks)
