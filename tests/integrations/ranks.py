"""What the processes of `test_group.py` do: `python -m tests.integrations.ranks RANK SIZE FOLDER JOB…`.

Each rank writes what it answers to each job into FOLDER/RANK.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

import eureka
from eureka.errors import RequestError
from eureka.group import examining_alone, group_size, is_first
from eureka.integrations.monitor import Monitor
from eureka.racing.race import Race

STEPS = 120
"""Of each training: a flat loss is told as a plateau at step 100."""
SECONDS = 60
"""A collective that waits for longer fails, and its process with it."""


def classifier() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A model that could learn at once; at the rate of `optimizer_of` it stays on its plateau."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    teacher = torch.randn(8, 4)
    inputs = [torch.randn(64, 8) for _ in range(40)]
    return model, [(x, (x @ teacher).argmax(dim=1)) for x in inputs]


def optimizer_of(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=1e-4)


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def digest(model: nn.Module) -> str:
    values = [value.detach().numpy().tobytes() for _, value in sorted(model.state_dict().items())]
    return hashlib.sha256(b"".join(values)).hexdigest()


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except RequestError as error:
        return str(error)
    return "not refused"


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    """What the logger "eureka" warns of meanwhile."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("eureka").addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger("eureka").removeHandler(handler)


def entry_points(model: nn.Module) -> dict[str, Callable[[], Any]]:
    batches, optimizer = classifier()[1], optimizer_of(model)
    return {
        "eureka.diagnose": lambda: eureka.diagnose(model, batches, loss=loss_of, optimizer=optimizer),
        "eureka.race": lambda: eureka.race(model, batches, loss=loss_of, optimizer=optimizer, remedies=["rate_x10"], steps=8),
        "eureka.clear_start": lambda: eureka.clear_start(model, batches[0][0]),
    }


def small_race(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Race:
    return eureka.race(model, batches, loss=loss_of, optimizer=optimizer_of(model), remedies=["rate_x1000"], steps=32)


def refusals(race: Race, model: nn.Module) -> dict[str, Any]:
    """Every entry point, of a race that was run on this model before the group began too."""
    before = digest(model)
    calls = entry_points(model) | {"Race.apply": race.apply, "eureka.attach": eureka.attach}
    sentences = {name: refusal(call) for name, call in calls.items()}
    return {"winner": race.winner, "sentences": sentences, "kept": digest(model) == before}


def alone() -> dict[str, Any]:
    """Rank 0 examines while the other waits; a model that waits for others itself is refused."""
    model, _ = classifier()
    wrapped = DistributedDataParallel(classifier()[0])
    causes: list[str] = []
    sentence = ""
    if is_first():
        with examining_alone():
            causes = [finding.cause for finding in entry_points(model)["eureka.diagnose"]().findings]
            sentence = refusal(entry_points(wrapped)["eureka.diagnose"])
    dist.barrier()
    return {"causes": causes, "afterwards": refusal(entry_points(model)["eureka.diagnose"]), "wrapped": sentence}


def trained(watch: Callable[..., contextlib.AbstractContextManager[Any]]) -> tuple[Any, str, Optimizer]:
    """A plain loop with DistributedDataParallel that comes to a plateau and trains on."""
    model, batches = classifier()
    replica = DistributedDataParallel(model)
    optimizer = optimizer_of(replica)
    with watch(model, batches, optimizer) as monitor:
        for step in range(STEPS):
            inputs, labels = batches[step % len(batches)]
            half = slice(dist.get_rank(), None, group_size())
            optimizer.zero_grad()
            loss_of(replica, (inputs[half], labels[half])).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if monitor is not None:
                monitor.update(step, 1.5)
    return monitor, digest(model), optimizer


def monitored(mode: str, folder: Path) -> dict[str, Any]:
    handed: list[int] = []

    def watch(model: nn.Module, batches: list[Any], optimizer: Optimizer) -> Monitor:
        def given() -> dict[str, Any]:
            handed.append(1)
            return {"model": model, "batches": batches, "loss": loss_of, "optimizer": optimizer}

        return Monitor(model, every=None, rescue=mode, given=given, folder=folder, share=20.0)

    with warned() as logged:
        monitor, after, optimizer = trained(watch)
    return {
        "events": [event.name for event in monitor.events],
        "since": monitor.events[0].plateau.start,
        "records": len(monitor.rescue.records),
        "handed": len(handed),
        "logged": logged,
        "digest": after,
        "unwatched": trained(lambda *_: contextlib.nullcontext())[1],
        "fresh": digest(classifier()[0]),
        "rates": [group["lr"] for group in optimizer.param_groups],
        "hooks": len(optimizer._optimizer_step_pre_hooks),
    }


def hugging_face(folder: Path) -> dict[str, Any]:
    """A Trainer with the callback, and the same one without."""
    from eureka.integrations.hugging_face import HuggingFaceCallback
    from tests.integrations.test_hugging_face import gpt2, trainer

    def train(watched: bool) -> tuple[Any, Any, str]:
        settings = {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "no", "learning_rate": 1e-6}
        job = trainer(gpt2(), folder, **settings)
        callback = HuggingFaceCallback(job, every=10, rescue="apply", share=20.0)
        if watched:
            job.add_callback(callback)
        job.train()
        return job, callback, digest(job.model)

    with warned() as logged:
        job, callback, after = train(True)
    wrapped = isinstance(job.model_wrapped, DistributedDataParallel)
    return watched_training(callback, job.state.global_step, logged, after) | {
        "wrapped": wrapped,
        "unwatched": train(False)[2],
        "fresh": digest(gpt2()),
        "diagnose": refusal(lambda: eureka.diagnose(job)),
    }


def lightning(folder: Path) -> dict[str, Any]:
    """A Lightning module with the callback, and the same one without."""
    from lightning.pytorch import Callback

    from eureka.integrations.lightning import LightningCallback
    from tests.integrations.test_lightning import Module, batches, fit

    def train(callback: Callback) -> tuple[Any, str]:
        module = Module(planted=True)
        trainer = fit(module, callback, folder, STEPS, devices=group_size(), strategy="ddp", enable_checkpointing=False)
        return trainer, digest(module)

    callback = LightningCallback(every=10, rescue="apply", share=20.0)
    with warned() as logged:
        trainer, after = train(callback)
    module = Module()
    optimizer = module.configure_optimizers()
    return watched_training(callback, trainer.global_step, logged, after) | {
        "wrapped": trainer.world_size == group_size(),
        "unwatched": train(Callback())[1],
        "fresh": digest(Module()),
        "diagnose": refusal(lambda: eureka.diagnose(module, batches(4), optimizer=optimizer)),
    }


def watched_training(callback: Any, steps: int, logged: list[str], after: str) -> dict[str, Any]:
    return {
        "steps": steps,
        "events": [event.name for event in callback.events],
        "since": callback.events[0].plateau.start,
        "probed": len(callback.monitor.records),
        "records": len(callback.monitor.rescue.records),
        "logged": logged,
        "digest": after,
    }


def resumed(folder: Path) -> dict[str, Any]:
    """A checkpoint of a run with one process, whose rescue is in force and whose next race waits."""
    model, batches = classifier()
    optimizer = optimizer_of(model)
    given = {"model": model, "batches": batches, "loss": loss_of, "optimizer": optimizer}
    monitor = Monitor(model, every=None, rescue="apply", given=lambda: given, folder=folder)
    record = {"step": 9, "causes": ["lr_too_small"], "winner": "rate_x10", "applied": True}
    with warned() as logged:
        monitor.rescue.load_state_dict({"records": [record], "pending": ["rate_x3"]})
    due = monitor.rescue.is_due(100_000)
    return {"logged": logged, "due": due, "hooks": len(optimizer._optimizer_step_pre_hooks)}


def sharded() -> dict[str, Any]:
    """Each way to shard a model, in a group of any size."""
    mesh = init_device_mesh("cpu", (group_size(),))
    device = torch.device("cpu")
    two = classifier()[0]
    fully_shard(two, mesh=mesh)
    partly = classifier()[0]
    fully_shard(partly[2], mesh=mesh)  # type: ignore[index]
    whole = FullyShardedDataParallel(classifier()[0], device_id=device, use_orig_params=True)
    models: dict[str, nn.Module] = {
        "fsdp1": FullyShardedDataParallel(classifier()[0], device_id=device),
        "fsdp1_orig_params": whole,
        "fsdp1_unwrapped": whole.module,
        "fsdp1_inside": nn.Sequential(FullyShardedDataParallel(classifier()[0], device_id=device)),
        "fsdp2": two,
        "fsdp2_partly": partly,
        "fsdp2_unwrapped": nn.Sequential(nn.Identity(), nn.ParameterList(two.parameters())),
    }
    return {name: {verb: refusal(call) for verb, call in entry_points(model).items()} for name, model in models.items()}


def group_of_one(folder: Path) -> dict[str, Any]:
    """As accelerate, the Trainer and Lightning may make one."""
    model, batches = classifier()
    found = eureka.diagnose(model, batches, loss=loss_of, optimizer=optimizer_of(model))
    replica = DistributedDataParallel(model)
    race = small_race(replica, batches)
    race.apply()
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    start = eureka.clear_start(layer, torch.randn(4, 6, 8), positions=None)
    return {
        "causes": [finding.cause for finding in found.findings],
        "winner": race.winner,
        "spreads": [spread for row in start.logits for spread in row.after],
        "monitor": monitored("apply", folder),
    }


def main() -> None:
    rank, size, folder, jobs = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # those of FSDP about this machine
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}  # the trainers read them
    model, batches = classifier()
    race = small_race(model, batches)  # before there is a group, which would refuse it
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    known: dict[str, Callable[[], dict[str, Any]]] = {
        "refusals": lambda: refusals(race, model),
        "alone": alone,
        "advise": lambda: monitored("advise", folder),
        "race": lambda: monitored("race", folder),
        "apply": lambda: monitored("apply", folder),
        "hugging_face": lambda: hugging_face(folder),
        "lightning": lambda: lightning(folder),
        "resumed": lambda: resumed(folder),
        "sharded": sharded,
        "group_of_one": lambda: group_of_one(folder),
    }
    answers = {job: known[job]() for job in jobs}
    (folder / f"{rank}.json").write_text(json.dumps(answers), encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
