"""Putting something at a site and taking it away again, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.calls import CallSite
from eureka.patching.hugging_face import HuggingFaceSite
from eureka.patching.multihead import MultiheadSite
from eureka.patching.seat import SEATS, Observer, Seat, seats, settle
from eureka.patching.sites import Site
from eureka.patching.swapped import base_class, swapped_class

MIXINS: dict[str, Any] = {"multihead": MultiheadSite, "hugging_face": HuggingFaceSite, "call": CallSite}
SWITCHES = "_eureka_switches"


def attach(site: Site, token: str, operator: Operator | None = None, observer: Observer | None = None) -> None:
    """Put an operator or an observer on top of what is there."""
    module = site.module
    if site.slot not in module.__dict__.get(SEATS, {}):
        _swap(site)
        original = module._modules.get(site.slot)
        seats(module)[site.slot] = Seat(original if isinstance(original, Operator) else None)
    seat = seats(module)[site.slot]
    if operator is not None:
        seat.operators.append((token, operator))
    if observer is not None:
        seat.observers[token] = observer
    settle(module, site.slot)


def detach(module: nn.Module, slot: str, token: str | None = None) -> None:
    """Take away what was put there under this token, or everything; whatever else is there stays."""
    seat = module.__dict__.get(SEATS, {}).get(slot)
    if seat is None:
        return
    seat.operators = [entry for entry in seat.operators if token is not None and entry[0] != token]
    seat.observers = {key: watch for key, watch in seat.observers.items() if token is not None and key != token}
    settle(module, slot)
    if SEATS not in module.__dict__ and base_class(module) is not type(module):
        module.__class__ = base_class(module)


def detach_all(model: nn.Module, sites: Sequence[Site], token: str) -> None:
    """Take away everything that was put into a model under this token."""
    for site in sites:
        detach(site.module, site.slot, token)
    for module in model.modules():
        switch_back(module, token)


def _swap(site: Site) -> None:
    if site.kind == "operator" or type(site.module) is not base_class(site.module):
        return
    if site.kind == "hugging_face":
        _check_implementation(site)
    elif "forward" in site.module.__dict__:
        raise RequestError(
            f"{site.name} has a forward of its own on the instance, put there by somebody else; patch before that."
        )
    site.module.__class__ = swapped_class(base_class(site.module), MIXINS[site.kind], site.methods)


def _check_implementation(site: Site) -> None:
    name = site.module.__dict__["config"]._attn_implementation
    if name not in ("sdpa", "eager", None):
        raise RequestError(
            f"{site.name} runs the attention implementation {name!r}, whose masks and inputs are of another kind;"
            " call model.set_attn_implementation('sdpa') before patching."
        )


def switch(module: nn.Module, attribute: str, value: Any, token: str) -> None:
    """Set an attribute of somebody's module until the last one who wanted so is gone."""
    wanted = module.__dict__.setdefault(SWITCHES, {})
    if attribute not in wanted:
        wanted[attribute] = (module.__dict__[attribute], [])
        module.__dict__[attribute] = value
    wanted[attribute][1].append(token)


def switch_back(module: nn.Module, token: str | None = None) -> None:
    """Undo the switches of a token, or all."""
    wanted = module.__dict__.get(SWITCHES)
    if wanted is None:
        return
    for attribute, (value, tokens) in list(wanted.items()):
        tokens[:] = [other for other in tokens if token is not None and other != token]
        if not tokens:
            module.__dict__[attribute] = value
            del wanted[attribute]
    if not wanted:
        del module.__dict__[SWITCHES]


def switch_for(model: nn.Module, sites: Sequence[Site], token: str) -> None:
    """Turn off what would pass these sites by: fused layers of torch.nn, unfused attention of timm."""
    patched = {id(site.module) for site in sites}
    for module in model.modules():
        own = module.__dict__
        if isinstance(module, nn.TransformerEncoderLayer) and id(module.self_attn) in patched:
            switch(module, "activation_relu_or_gelu", 0, token)  # 0 is "neither": the fused layer is not taken
        if own.get("use_nested_tensor") and any(id(child) in patched for child in module.modules()):
            switch(module, "use_nested_tensor", False, token)
        if id(module) in patched and own.get("fused_attn") is False:
            switch(module, "fused_attn", True, token)
