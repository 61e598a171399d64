"""What `clear_start` refuses before it measures: a number out of range, a batch that shows nothing, a sharded model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from eureka.errors import RequestError
from eureka.group import refuse_group, refuse_sharded
from eureka.probes.capture import check_model

LEAST, MOST = 1e-6, 1e6
"""What may be asked for; beyond it, single precision is lost."""
BESIDE = re.compile("mask|position_ids|token_type_ids|labels?$")
"""Keywords of inputs that are no content."""


def check_request(model: nn.Module, inputs: Any, positions: float | None, logits: float | None, seed: int) -> None:
    """Raise unless positions can be seen and logits measured on this batch, in this process."""
    check_model(model)
    refuse_group("eureka.clear_start")  # each process would scale its part by what it measures on a batch of its own
    refuse_sharded(model, "eureka.clear_start")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or is_lazy(parameter):
            raise RequestError(f"{name} of {type(model).__name__} has no values yet (meta or lazy); initialise the model first.")
    _check_batch(inputs)
    if positions is None and logits is None:
        raise RequestError("positions=None and logits=None leave nothing to do; give at least one of them.")
    for name, value in (("positions", positions), ("logits", logits)):
        if value is not None and not (_is_number(value) and LEAST <= value <= MOST):
            raise RequestError(f"{name} is a number from {LEAST:g} to {MOST:g}, or None, not {value!r}.")
    if not (_is_number(seed) and isinstance(seed, Integral) and 0 <= seed < 2**63):
        raise RequestError(f"seed is a whole number from 0 to 2**63 - 1, not {seed!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_batch(inputs: Any) -> None:
    """A batch without samples, or with one value everywhere, shows nothing."""
    for tensor in tree_leaves(inputs):
        if isinstance(tensor, Tensor) and 0 in tensor.shape[:2]:  # series may have no features beside their values
            raise RequestError(f"the inputs hold a tensor of shape {tuple(tensor.shape)}; pass a batch with a sample or more.")
    content = (
        {key: value for key, value in inputs.items() if not BESIDE.search(str(key))} if isinstance(inputs, Mapping) else inputs
    )
    tensors = [tensor for tensor in tree_leaves(content) if isinstance(tensor, Tensor) and tensor.numel() > 1]
    if tensors and all((tensor == tensor.flatten()[0]).all() for tensor in tensors):
        value = tensors[0].flatten()[0].item()
        raise RequestError(
            f"the inputs hold {value!r} at every place, which shows neither positions nor a spread; pass a batch of real samples."
        )
