"""Attach operators and observers to the sites of a model, and detach them in any order.

Everything that patching and probing need of a model is here: its sites, their attention calls, its optimiser.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.by_hand import BranchingSite, ByHandSite
from eureka.patching.hugging_face import HuggingFaceSite
from eureka.patching.multihead import MultiheadSite
from eureka.patching.sdpa import CallSite
from eureka.patching.selfcheck import SelfCheck
from eureka.patching.sites import Found, Layers, Site, find_sites, select_sites
from eureka.patching.slot import (
    LOCK,
    SLOTS,
    AttentionCall,
    OperatorSlot,
    base_class,
    find_slot,
    slots,
    swapped_class,
    update_submodule,
)
from eureka.patching.written_out import by_hand, is_written_out

__all__ = [
    "AttentionCall",
    "Found",
    "Layers",
    "OptimiserSteps",
    "Site",
    "attached",
    "by_hand",
    "detach_all",
    "find_sites",
    "select_sites",
]

MIXINS: dict[str, Any] = {"multihead": MultiheadSite, "hugging_face": HuggingFaceSite, "call": CallSite, "by_hand": ByHandSite}
SWITCHES = "_eureka_switches"
"""The attribute of a module that holds what `_switch` changed: by attribute, the value before and the owners."""
SET_ASIDE = "_eureka_compiled"
"""The attribute of a module that holds its `CompiledCall`."""


def attached(
    model: nn.Module,
    sites: Sequence[Site],
    *,
    operators: Sequence[Operator] | None = None,
    observer: Callable[[Site, AttentionCall], None] | None = None,
    undo: Callable[[], None] | None = None,
) -> ExitStack:
    """Attach an operator to each site, on top of what is there, or an observer to all; closing the result detaches them.

    It may be used in a `with` statement. If it is dropped without being closed, they stay attached. With `undo`, each site checks
    its first call against the model's own code, and calls it if they differ.
    """
    owner = uuid.uuid4().hex
    with LOCK, ExitStack() as stack:
        stack.callback(_detach_owner, model, sites, owner)
        for number, site in enumerate(sites):
            slot = _open_slot(site)
            if operators is not None:
                slot.operators.append((owner, operators[number]))
                slot.check = SelfCheck(site.name, undo) if undo is not None and site.kind != "operator" else None
            if observer is not None:
                slot.observers[owner] = partial(observer, site)
            update_submodule(site.module, site.submodule)
        _switch_fast_paths(model, sites, owner)
        if observer is not None:
            _set_compiled_aside(model, owner)
        return stack.pop_all()


def detach_all(model: nn.Module) -> int:
    """Detach everything from a model, whoever attached it; how many sites were freed."""
    count = 0
    with LOCK:
        for module in list(model.modules()):
            for name in list(module.__dict__.get(SLOTS, {})):
                _detach(module, name, None)
                count += 1
            _switch_back(module, None)
            _bring_compiled_back(module, None)
    return count


def _detach_owner(model: nn.Module, sites: Sequence[Site], owner: str) -> None:
    with LOCK:
        for site in sites:
            _detach(site.module, site.submodule, owner)
        for module in model.modules():
            _switch_back(module, owner)
            _bring_compiled_back(module, owner)


def _detach(module: nn.Module, name: str, owner: str | None) -> None:
    """Remove what an owner has put into a slot, or everything, and give the module its class back if nothing is left."""
    slot = find_slot(module, name)
    if slot is None:
        return
    slot.remove(owner)
    update_submodule(module, name)
    if SLOTS not in module.__dict__ and base_class(module) is not type(module):
        module.__class__ = base_class(module)


def _open_slot(site: Site) -> OperatorSlot:
    """The slot of a site; the first to ask for it swaps the module's class."""
    slot = find_slot(site.module, site.submodule)
    if slot is None:
        _swap_class(site)
        original = site.module._modules.get(site.submodule)
        slot = OperatorSlot(original if isinstance(original, Operator) else None, heads=site.heads)
        slots(site.module)[site.submodule] = slot
    return slot


def _swap_class(site: Site) -> None:
    if site.kind == "operator" or type(site.module) is not base_class(site.module):
        return
    if site.kind == "hugging_face":
        _check_implementation(site)
    elif "forward" in site.module.__dict__:
        raise RequestError(
            f"{site.name} has a forward of its own on the instance, set by another tool; patch before that tool runs."
        )
    mixin = BranchingSite if site.kind == "call" and is_written_out(site.module) else MIXINS[site.kind]
    site.module.__class__ = swapped_class(base_class(site.module), mixin, site.methods)


def _check_implementation(site: Site) -> None:
    name = site.module.__dict__["config"]._attn_implementation
    if name not in ("sdpa", "eager", None):
        raise RequestError(
            f"{site.name} runs the attention implementation {name!r}, whose masks and inputs are of another kind;"
            " call model.set_attn_implementation('sdpa') before patching."
        )


def _switch_fast_paths(model: nn.Module, sites: Sequence[Site], owner: str) -> None:
    """Turn off the paths that would bypass these sites: fused layers of torch.nn, unfused attention of timm."""
    patched = {id(site.module) for site in sites}
    for module in model.modules():
        own = module.__dict__
        if isinstance(module, nn.TransformerEncoderLayer) and id(module.self_attn) in patched:
            _switch(module, "activation_relu_or_gelu", 0, owner)  # 0 is "neither": the fused layer is not taken
        if own.get("use_nested_tensor") and any(id(child) in patched for child in module.modules()):
            _switch(module, "use_nested_tensor", False, owner)
        if id(module) in patched and own.get("fused_attn") is False:
            _switch(module, "fused_attn", True, owner)


def _switch(module: nn.Module, attribute: str, value: Any, owner: str) -> None:
    """Set an attribute of a module; it is restored when the last owner has switched it back."""
    switched = module.__dict__.setdefault(SWITCHES, {})
    if attribute not in switched:
        switched[attribute] = (module.__dict__[attribute], [])
        module.__dict__[attribute] = value
    switched[attribute][1].append(owner)


def _switch_back(module: nn.Module, owner: str | None) -> None:
    """Undo the switches of an owner, or all."""
    switched = module.__dict__.get(SWITCHES)
    if switched is None:
        return
    for attribute, (value, owners) in list(switched.items()):
        owners[:] = [other for other in owners if owner is not None and other != owner]
        if not owners:
            module.__dict__[attribute] = value
            del switched[attribute]
    if not switched:
        del module.__dict__[SWITCHES]


class CompiledCall:
    """What ``compile()`` made of a module that is observed, and who observes it. In a copy or a pickle it is empty."""

    def __init__(self, call: Any = None) -> None:
        self.call = call
        self.owners: list[str] = []

    def __reduce__(self) -> Any:
        return CompiledCall, ()


def _set_compiled_aside(model: nn.Module, owner: str) -> None:
    """Let the modules that ``compile()`` compiled in place run as they are written: compiled code calls no observer."""
    for module in model.modules():
        if module._compiled_call_impl is not None:
            module.__dict__[SET_ASIDE] = CompiledCall(module._compiled_call_impl)
            module._compiled_call_impl = None
        if SET_ASIDE in module.__dict__:
            module.__dict__[SET_ASIDE].owners.append(owner)


def _bring_compiled_back(module: nn.Module, owner: str | None) -> None:
    """Undo `_set_compiled_aside` of an owner, or all; a module that was compiled anew meanwhile keeps its new call."""
    aside = module.__dict__.get(SET_ASIDE)
    if aside is None:
        return
    aside.owners = [other for other in aside.owners if owner is not None and other != owner]
    if not aside.owners:
        del module.__dict__[SET_ASIDE]
        if module._compiled_call_impl is None:
            module._compiled_call_impl = aside.call


class OptimiserSteps:
    """Calls `on_step` after each step of the optimiser that trains a model, until it is closed.

    That is the first optimiser that steps a parameter of the model; another one counts only when the first is gone. So two
    optimisers for two halves of a model do not count double. The model is not kept alive.
    """

    def __init__(self, model: nn.Module, on_step: Callable[[], None]) -> None:
        self._model = weakref.ref(model)
        self._on_step = on_step
        self._leader: weakref.ref[Optimizer] | None = None
        self._hook: Any = register_optimizer_step_post_hook(self._stepped)  # not before the step: a closure runs inside it

    def close(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _stepped(self, optimiser: Optimizer, *_: Any) -> None:
        if self._leads(optimiser):
            self._leader = weakref.ref(optimiser)
            self._on_step()

    def _leads(self, optimiser: Optimizer) -> bool:
        leader, model = self._leader() if self._leader is not None else None, self._model()
        if leader is not None or model is None:
            return leader is optimiser
        own = {id(parameter) for parameter in model.parameters()}
        return any(id(parameter) in own for group in optimiser.param_groups for parameter in group["params"])
