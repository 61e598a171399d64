"""Whether an operator can do what a site asks of it: said when a model is patched, not when it runs."""

from __future__ import annotations

from torch import Tensor, nn

from eureka.attention.operator import Operator, SoftmaxFamily
from eureka.errors import RequestError
from eureka.patching.sites import Site

CAPS = ("attn_logit_softcapping", "attn_logit_softcap", "logits_soft_cap", "softcap")
SINKS = ("sinks", "attention_sinks", "s_aux")


def check_operator(site: Site, operator: Operator) -> None:
    """An error if the site has a soft cap, sinks or a softmax of its own that this operator cannot take part in."""
    what = extras_of(site.module) if site.kind == "hugging_face" else None
    if what is not None and not isinstance(operator, SoftmaxFamily):
        raise RequestError(
            f"{site.name} has {what}, which {type(operator).__name__} knows no meaning of:"
            " only operators of the softmax family do."
        )
    if site.kind == "by_hand" and operator.needs_values:
        raise RequestError(
            f"{site.name} writes its softmax out, where {type(operator).__name__} cannot reach its values;"
            " leave it out with layers=…."
        )


def extras_of(module: nn.Module) -> str | None:
    """What a module of transformers does to its logits beside a bias, by the attributes that it has."""
    if any(isinstance(getattr(module, name, None), float | int) for name in CAPS):
        return "a soft cap on its logits"
    return "attention sinks" if any(isinstance(getattr(module, name, None), Tensor) for name in SINKS) else None
