"""Does a checkpoint belong to this run? Asked before anything of it is loaded, so that a model is never half overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Generator, Tensor, nn
from torch.optim import Optimizer

KEYS = ("run", "step", "seconds", "model", "optimiser", "data_generator", "torch_generator", "progress")
"""What every checkpoint holds. What attention did may be missing: its lines are then written anew."""


def misfit(state: Mapping[str, Any], run: str, step: int, steps: int, model: nn.Module, optimiser: Optimizer) -> str | None:
    """Why a checkpoint cannot be gone on from; None if it can.

    run     the digest of the run's config, which includes its seed
    step    the step that its file is named after
    steps   how many the run has in all
    """
    if missing := [key for key in KEYS if key not in state]:
        return f"holds no {missing[0]}"
    if state["run"] != run:
        return "belongs to another run"
    if state["step"] != step or not 0 < step <= steps:
        return f"holds step {state['step']!r}, which cannot be"
    if not isinstance(state["seconds"], float) or not _counts(state["progress"]):
        return "holds counts that cannot be"
    if not _generates(state["data_generator"]) or not _generates(state["torch_generator"]):
        return "holds no state of a generator"
    if not _same_shapes(state["model"], model.state_dict()):
        return "holds weights of another model"
    return None if _optimises(state["optimiser"], optimiser) else "holds the state of another optimiser"


def _counts(progress: Any) -> bool:
    if not isinstance(progress, Mapping) or not {"loss", "accuracy", "count", "bytes"} <= progress.keys():
        return False
    sums = all(isinstance(progress[key], Tensor) and progress[key].numel() == 1 for key in ("loss", "accuracy"))
    return sums and all(type(progress[key]) is int and progress[key] >= 0 for key in ("count", "bytes"))


def _generates(state: Any) -> bool:
    try:
        Generator().set_state(state)
    except (RuntimeError, TypeError):
        return False
    return True


def _same_shapes(state: Any, own: Mapping[str, Any]) -> bool:
    if not isinstance(state, Mapping) or state.keys() != own.keys():
        return False
    return all(_alike(state[name], value) if isinstance(value, Tensor) else True for name, value in own.items())


def _alike(one: Any, other: Tensor) -> bool:
    return isinstance(one, Tensor) and (one.shape, one.dtype) == (other.shape, other.dtype)


def _optimises(state: Any, own: Optimizer) -> bool:
    """Whether groups and parameters are those of the optimiser, and every moment has the shape of its parameter."""
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= state.keys():
        return False
    groups, parameters = state["param_groups"], [one for group in own.param_groups for one in group["params"]]
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        return False
    if [group.keys() for group in groups] != [group.keys() for group in own.state_dict()["param_groups"]]:
        return False
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in own.param_groups]:
        return False
    kept = state["state"]
    return isinstance(kept, Mapping) and all(
        index in range(len(parameters)) and isinstance(values, Mapping) and _moments(values, parameters[index])
        for index, values in kept.items()
    )


def _moments(values: Mapping[str, Any], parameter: Tensor) -> bool:
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    return all(value.numel() == 1 or value.shape == parameter.shape for value in tensors)
