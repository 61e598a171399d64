"""Say where the parameters of operators would be lost: frozen, in no optimiser, or left out of a checkpoint."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from eureka.attention.operator import Operator
from eureka.patching.slot import SUBMODULE

LOGGER = logging.getLogger("eureka")
STEPS = 2
"""After so many steps of the optimiser that trains the model, all others have made one."""


def say_left_out(model: nn.Module) -> None:
    """Warn where a checkpoint has, or will have, no parameters of operators."""
    if (file := _held_by(model)) is not None:
        LOGGER.warning(
            "%s holds parameters of an operator, which from_pretrained leaves out: the operators start afresh. Call"
            " model.load_state_dict(safetensors.torch.load_file(file), strict=False) after eureka.patch.",
            file,
        )
    if any("peft_config" in vars(module) for module in model.modules()):
        LOGGER.warning(
            "peft saves its own parameters only, not those of the operators: save model.state_dict() too, and load it after"
            " eureka.patch."
        )


def _held_by(model: nn.Module) -> Path | None:
    """The file with parameters of operators that a Hugging Face model was loaded from."""
    name = getattr(getattr(model, "config", None), "_name_or_path", None)
    if not isinstance(name, str) or not name or not Path(name).is_dir():
        return None
    from safetensors import SafetensorError, safe_open

    for file in sorted(Path(name).glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as stored:
                if any(f".{SUBMODULE}." in key for key in stored.keys()):  # noqa: SIM118 - it is no dict
                    return file
        except (SafetensorError, OSError):
            continue
    return None


class TrainedCheck:
    """Warns once if parameters of operators are not trained: peft froze them, or the optimiser was made before the patch."""

    _done: ClassVar[list[Any]] = []
    """Hooks of checks that have ended inside a step: there the table of hooks is being walked, so they are removed later."""

    def __init__(self, model: nn.Module, operators: Sequence[Operator]) -> None:
        while self._done:
            self._done.pop().remove()
        self._model = weakref.ref(model)
        self._operators = list(operators)
        self._held: set[int] = set()
        self._leader: weakref.ref[Optimizer] | None = None
        self._steps = 0
        self._hook: Any = register_optimizer_step_post_hook(self._stepped)

    def close(self) -> None:
        """End it; not from within a step."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _end(self) -> None:
        """End it from within a step, and hold nothing of the model any longer."""
        if self._hook is not None:
            self._done.append(self._hook)
        self._hook, self._operators = None, []

    def _stepped(self, optimiser: Optimizer, *_: Any) -> None:
        if self._hook is None:
            return
        model = self._model()
        if model is None:
            self._end()
            return
        held = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        self._held |= held
        if self._leader is None and any(id(parameter) in held for parameter in model.parameters()):
            self._leader = weakref.ref(optimiser)
        if self._leader is not None and self._leader() is optimiser:
            self._steps += 1
            if self._steps == STEPS:
                self._judge()
                self._end()

    def _judge(self) -> None:
        parameters = [parameter for operator in self._operators for parameter in operator.parameters()]
        frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        missing = [parameter for parameter in parameters if parameter.requires_grad and id(parameter) not in self._held]
        if frozen:
            LOGGER.warning(
                "%d of %d parameters of the operators are frozen and stay as they are (peft freezes what is there when it wraps a"
                " model): call eureka.patch after it.",
                len(frozen),
                len(parameters),
            )
        if missing:
            LOGGER.warning(
                "%d of %d parameters of the operators are in no optimiser and stay as they are: make the optimiser after"
                " eureka.patch, or add patched.parameters() to it.",
                len(missing),
                len(parameters),
            )
