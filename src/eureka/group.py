"""Process groups of torch.distributed: how many processes train together, and what eureka does in one process only.

Experiments on copies of one rank would wait for the collectives of the other ranks for ever, or leave their weights apart. So
each entry point refuses, in one sentence, a group of more than one process and a model that is kept in shards. A group of one
process, as the Trainer, Lightning or accelerate may make it, is a run like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from eureka.errors import RequestError

if TYPE_CHECKING:
    from torch import nn

DIAGNOSE_INSTEAD = "start the script with torchrun … -m eureka diagnose train.py, or diagnose a checkpoint in one process"
"""How a run that trains in several processes is examined."""
INSTEAD = {
    "eureka.diagnose": DIAGNOSE_INSTEAD,
    "eureka.race": "start the script with torchrun … -m eureka race train.py, or race a checkpoint in a run with one process",
    "eureka.attach": "start the script with torchrun … -m eureka diagnose train.py",
    "eureka.clear_start": "call it before init_process_group, on the same batch in every process",
    "Race.apply": "apply the winner in a run with one process, or make its change by hand on every rank",
}
"""What to do instead of a call that is refused."""
_EXAMINING_ALONE: ContextVar[bool] = ContextVar("examining_alone", default=False)


def group_size() -> int:
    """Return the number of processes in the group; 1 without a group."""
    distributed = _initialised()
    return 1 if distributed is None else int(distributed.get_world_size())


def is_first() -> bool:
    """Return whether this process is rank 0, or has no group."""
    distributed = _initialised()
    return distributed is None or int(distributed.get_rank()) == 0


def _initialised() -> Any:
    """Return torch.distributed if there is a group. A process that has not imported it has none: importing it takes time."""
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed is not None and distributed.is_available() and distributed.is_initialized() else None


def refuse_group(verb: str) -> None:
    """Raise if this process belongs to a group of more than one process, except inside `examining_alone`.

    verb   what was called, a key of `INSTEAD`
    """
    size = group_size()
    if size > 1 and not _EXAMINING_ALONE.get():
        raise RequestError(
            f"{verb} works in one process, and this process belongs to a group of {size}, whose ranks would wait for each other"
            f" or drift apart: {INSTEAD[verb]}."
        )


@contextmanager
def examining_alone() -> Iterator[None]:
    """Let this thread call what `refuse_group` refuses: the other ranks wait meanwhile, or do the same with the same data."""
    token = _EXAMINING_ALONE.set(True)
    try:
        yield
    finally:
        _EXAMINING_ALONE.reset(token)


def refuse_sharded(model: nn.Module, verb: str) -> None:
    """Raise if the parameters of a model are spread over processes, even over one: their copies are no whole model.

    A model that is wrapped in DistributedDataParallel is whole, but each of its passes waits for the other ranks.
    """
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    if group_size() > 1 and any(kind.__name__ == "DistributedDataParallel" and _package(kind) == "torch" for kind in kinds):
        raise RequestError(
            f"{verb} works in one process, and DistributedDataParallel waits for the other ranks: pass model.module."
        )
    if (wrapper := _sharded_by(model, kinds)) is not None:
        raise RequestError(
            f"{verb} needs whole parameters, and {wrapper} keeps those of {type(model).__name__} in shards: pass the model as it"
            " is before it is wrapped or sharded, in a run with one process."
        )


def _sharded_by(model: nn.Module, kinds: set[type]) -> str | None:
    """Return what keeps a model in shards, by the names of types: so no package is imported that the user's run has not."""
    for kind in kinds:
        if kind.__name__ == "FullyShardedDataParallel":
            return "FullyShardedDataParallel"
        if kind.__name__ == "FSDPModule":
            return "fully_shard"
        if _package(kind) == "deepspeed" and kind.__name__.endswith("Engine"):
            return "DeepSpeed"
        if _package(kind) == "megatron" and kind.__name__.endswith("DistributedDataParallel"):
            return "Megatron's DistributedDataParallel"
    for parameter in model.parameters():
        # The module inside of a wrapper may be passed too: then only its parameters show that they are shards.
        if any(kind.__name__ == "DTensor" for kind in (*type(parameter).__mro__, *type(parameter.data).__mro__)):
            return "DTensor"
        if getattr(parameter, "_fsdp_flattened", False):
            return "FullyShardedDataParallel"
        if hasattr(parameter, "ds_id"):  # ZeRO-3
            return "DeepSpeed"
    return None


def _package(kind: type) -> str:
    return kind.__module__.split(".")[0]
