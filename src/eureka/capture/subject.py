"""The modules and parameters that a script trains, found from its optimisers, each with a name that its copies share."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from eureka.capture.lines import name_in_script
from eureka.forks.held import Held, functions_of

WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
"""Modules that run another one as it is, but distributed or compiled."""


def bare(module: nn.Module) -> nn.Module:
    """Return the module inside of wrappers that distribute or compile it."""
    while (name := WRAPPERS.get(type(module).__name__)) is not None and name in module._modules:
        inner = module._modules[name]
        assert inner is not None
        module = inner
    return module


class Tensors(nn.Module):
    """Holds trained tensors that belong to no module, under the names that the script gives them."""

    def __init__(self, named: dict[str, Tensor]) -> None:
        super().__init__()
        # A plain tensor is no `nn.Parameter`; it is entered as it is, so that the optimiser and this module share it.
        self._parameters.update(named)  # type: ignore[arg-type]


class Root(nn.Module):
    """Holds the modules of one subject; it is no module of the script's."""


class Subject:
    """The outermost modules that hold a parameter of any optimiser, as children of one `root`."""

    def __init__(self, trained: Iterable[Tensor]) -> None:
        trained = list({id(one): one for one in trained}.values())
        wanted = {id(one) for one in trained}
        self.root: nn.Module = Root()
        for module in _outermost([one for one in _modules() if not isinstance(one, Tensors | Root)]):
            if any(id(one) in wanted for one in module.parameters()):
                self.root.add_module(self._free_name(name_in_script(module) or type(module).__name__.lower()), bare(module))
        held = {id(one) for one in self.root.parameters()}
        alone = [one for one in trained if id(one) not in held]
        if alone:
            names = {}
            for place, one in enumerate(alone):
                name = name_in_script(one).replace(".", "_") or f"tensor_{place}"
                names[name if name not in names else f"{name}_{place}"] = one
            self.root.add_module(self._free_name("tensors"), Tensors(names))
        self.reindex()

    def reindex(self) -> None:
        """Look names up again, after modules or parameters were added."""
        self._tensors = dict(self.root.named_parameters(remove_duplicate=False))
        self._names: dict[int, str] = {}
        for name, one in self._tensors.items():
            self._names.setdefault(id(one), name)
        self._paths = {id(module): name for name, module in self.root.named_modules() if name}
        self._parameters = [one for one in self.root.parameters() if one.requires_grad]

    def _free_name(self, name: str) -> str:
        name = name.replace(".", "_")
        while name in self.root._modules or hasattr(nn.Module, name) or name == "training":
            name += "_"
        return name

    def holds(self, module: nn.Module) -> bool:
        """Return whether a module is among the trained ones or inside of one."""
        return id(module) in self._paths

    def path(self, module: nn.Module) -> str | None:
        """Return the name of a module below `root`."""
        return self._paths.get(id(bare(module)))

    def name_of(self, tensor: Tensor) -> str | None:
        """Return the name of a parameter below `root`."""
        name = self._names.get(id(tensor))
        return name if name is not None and self._tensors[name] is tensor else None

    def tensor(self, name: str) -> Tensor:
        """Return the parameter of a name."""
        return self._tensors[name]

    def parameters(self) -> list[Tensor]:
        """Return the parameters that need a gradient, each once."""
        return self._parameters  # type: ignore[return-value]

    def weight_marks(self) -> dict[str, tuple[int, int]]:
        """Return where each trained weight lies and how often it was written to; a change shows that it was written."""
        return {self._names[id(one)]: (one.data_ptr(), one._version) for one in self._parameters}

    def smallest(self, trained: Sequence[Tensor], called: Sequence[nn.Module]) -> str | None:
        """Return the path of the smallest module that holds these parameters and these called modules; None if none does."""
        wanted, inside = {id(one) for one in trained}, {id(bare(one)) for one in called}

        def covers(module: nn.Module) -> bool:
            return wanted <= {id(one) for one in module.parameters()} and inside <= {id(one) for one in module.modules()}

        found: str | None = None
        current = self.root
        while (child := next(((n, m) for n, m in current.named_children() if covers(m)), None)) is not None:
            found = child[0] if found is None else f"{found}.{child[0]}"
            current = child[1]
            if id(current) in inside:  # the script calls it: what is inside runs as its part
                break
        return found


def held_beside(subject: Subject, optimizers: Sequence[torch.optim.Optimizer]) -> Held:
    """Keep what the methods of the script's own modules refer to besides the modules: counters, logs, generators."""
    classes = {type(one) for one in subject.root.modules() if not type(one).__module__.startswith("torch.")}
    methods = [one for cls in classes for one in vars(cls).values() if isinstance(one, types.FunctionType)]
    modules = [bare(one) for one in _modules()]
    held = Held([*methods, *functions_of(subject.root)], except_=[*modules, *optimizers, *subject.root.parameters()])
    for cls in classes - {Root, Tensors}:
        held.keep_class(cls)
    return held


def _modules() -> list[nn.Module]:
    # `isinstance` would ask proxies for their class, which may run code of the user's.
    return [one for one in gc.get_objects() if issubclass(type(one), nn.Module) and "_modules" in vars(one)]


def _outermost(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Without those inside of others; a wrapper that was abandoned counts as well."""
    inside = {id(child) for module in modules for child in module._modules.values() if child is not None}
    return [module for module in modules if id(module) not in inside]


def refuse_kind(modules: Iterable[nn.Module], tensors: Iterable[Any]) -> str:
    """Return why models of this kind cannot be taped, in a sentence; nothing if they can."""
    for module in modules:
        kinds = {(cls.__name__, cls.__module__.split(".")[0]) for cls in type(module).__mro__}
        names = {name for name, _ in kinds}
        if "FullyShardedDataParallel" in names or "FSDPModule" in names:
            return "FSDP splits the weights over processes, so no process has a model to copy."
        if any(package == "deepspeed" for _, package in kinds):
            return "DeepSpeed makes the steps and splits the optimiser, so a step cannot be repeated on a copy."
        if any(package == "megatron" for _, package in kinds):
            return "Megatron splits the model over processes, so no process has a model to copy."
        if isinstance(module, torch.jit.ScriptModule):
            return "the model is scripted or traced by torch.jit, and its copies run other code; leave torch.jit out for this."
        if "SyncBatchNorm" in names:
            return "SyncBatchNorm talks to the other processes in every forward pass, so one process cannot examine a copy."
    for tensor in tensors:
        if getattr(tensor, "_post_accumulate_grad_hooks", None):
            return "a hook acts on gradients as backward leaves them (register_post_accumulate_grad_hook), and copies have none."
        if type(tensor).__name__ == "DTensor":
            return "the weights are split over processes (DTensor), so no process has a model to copy."
        if isinstance(tensor, Tensor) and tensor.device.type == "xla":
            return "on XLA devices operations run later, so a step cannot be taped."
    return ""


def size_in_bytes(module: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """Return what the weights, buffers and optimiser states take."""
    tensors = [*module.parameters(), *module.buffers()]
    for optimizer in optimizers:
        tensors += [one for state in optimizer.state.values() for one in state.values() if isinstance(one, Tensor)]
    return sum(one.numel() * one.element_size() for one in tensors)
