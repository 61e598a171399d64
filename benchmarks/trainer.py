"""What a step of our loop costs beside a step of a bare Hugging Face Trainer, and how much of it is spent on data.

Both train the same model of transformers, ours patched with plain softmax as every run is, the Trainer's as it comes: the same
samples and batch size, the same AdamW, the same loss, no clipping. The Trainer's samples are drawn beforehand and only collated;
ours are drawn in the step. Ours also counts accuracy, checks each loss, logs, and looks at attention, at the rates of the recipe;
both validate as often. Steps are made in turns, in one process, and timed by processor time.

``python -m benchmarks.trainer [--recipes A,B,…] [--json]``
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Generator, Tensor, nn

from benchmarks.command import start
from benchmarks.training import bare_validation, make_loop, our_log, our_step, probed_loop
from eureka.bench.timing import Job, interleaved
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.table import print_table
from eureka.config import RunConfig
from eureka.errors import MissingExtraError
from eureka.recipes import RECIPES, recipe
from eureka.tasks.task import Batch, Task
from eureka.training.optimiser import make_optimiser

CHOSEN = [name for name in RECIPES if name.startswith("hf/")]
BATCHES = 100
"""Batches that the Trainer's data set holds; it goes through them again and again."""
ENDLESS = 10**9


@dataclass(frozen=True)
class TrainerCost:
    """A step of our loop with one recipe on one thread."""

    recipe: str
    vs_trainer: float
    """with logs, validations, probes and maps, as a multiple of a step of the Trainer that validates as often"""
    step_alone: float
    """the step without them, as a multiple of a step of the Trainer"""
    data_share: float
    """drawing the samples, as a share of our step alone"""


def run(
    recipes: Sequence[str] = CHOSEN, *, rounds: int = 80, progress: Callable[[str], None] = lambda line: None
) -> list[TrainerCost]:
    """The cost of each recipe's step."""
    torch.set_num_threads(1)
    configs = {name: recipe(name) for name in recipes}  # a wrong name is an error before anything is measured
    costs = []
    for name, config in configs.items():
        progress(name)
        costs.append(trainer_cost(name, config, rounds))
    return costs


def trainer_cost(name: str, config: RunConfig, rounds: int) -> TrainerCost:
    """Both steps, timed in turns and often; then what our loop does only now and then, beside its own step."""
    training = config.training
    with (
        tempfile.TemporaryDirectory() as place,
        probed_loop(config, Path(place) / "probed") as probed,
        trainer_steps(config, Path(place) / "trainer") as their_step,
    ):
        loop = make_loop(config, Path(place) / "plain")
        generator = Generator().manual_seed(0)
        steps = interleaved({"trainer": their_step, "ours": lambda: our_step(loop)}, rounds, budget=90.0)
        parts: dict[str, Job] = {"ours": lambda: our_step(loop), "probed": lambda: our_step(probed)}
        parts |= {"log": lambda: our_log(loop), "validation": bare_validation(config)}
        parts |= {"map": lambda: probed.attention.draw(0)}
        parts["data"] = lambda: loop.task.sample(training.batch_size, generator, "train")
        times = interleaved(parts, max(2, rounds // 8), budget=60.0)
    more = times["log"] / training.log_every + times["map"] / loop.attention.map_every
    if training.probe_every:
        more += (times["probed"] - times["ours"]) / training.probe_every
    return TrainerCost(
        recipe=name,
        vs_trainer=(steps["ours"] + more) / (steps["trainer"] + times["validation"] / training.log_every),
        step_alone=steps["ours"] / steps["trainer"],
        data_share=times["data"] / times["ours"],
    )


class WithLoss(nn.Module):
    """A model that returns its loss, as a Trainer wants it."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.task.loss(self.model(inputs), Batch(inputs, labels, {}))}


class Drawn(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Samples that were drawn beforehand."""

    def __init__(self, task: Task, count: int) -> None:
        self.batch = task.sample(count, Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.batch.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.batch.inputs[index], "labels": self.batch.labels[index]}


@contextmanager
def trainer_steps(config: RunConfig, place: Path) -> Iterator[Job]:
    """A Trainer that trains in a thread of its own and halts after every step; the job lets it make the next one.

    A step goes from the end of one to the end of the next: it has all that a Trainer does in between, its data too.
    """
    transformers = _transformers()
    go, done = threading.Semaphore(0), threading.Semaphore(0)
    failed: list[BaseException] = []

    class Halting(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        stopped = False

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            done.release()
            go.acquire()
            control.should_training_stop = self.stopped

    halting = Halting()
    trainer = make_trainer(config, place)
    trainer.add_callback(halting)

    def train() -> None:
        try:
            trainer.train()
        except BaseException as error:
            failed.append(error)
        done.release()

    def step() -> None:
        go.release()
        done.acquire()
        if failed:
            raise failed[0]

    thread = threading.Thread(target=train)
    thread.start()
    done.acquire()  # its first step, in which it sets everything up
    try:
        yield step
    finally:
        halting.stopped = True
        go.release()
        thread.join()


def make_trainer(config: RunConfig, place: Path) -> Any:
    """The recipe's model as it comes, its batches and its optimiser, in a Trainer that logs and saves nothing."""
    transformers = _transformers()
    task, training = config.task.build(), config.training
    torch.manual_seed(training.seed)
    model = config.model.build(
        input_shape=task.input_shape,
        classes=task.classes,
        make_attention=lambda heads, head_dim: None,  # it makes its own
        vocabulary=task.vocabulary,
        per_token=task.per_token,
    )
    settings = transformers.TrainingArguments(
        str(place),
        max_steps=ENDLESS,
        per_device_train_batch_size=training.batch_size,
        learning_rate=training.lr,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=training.seed,
    )
    data = Drawn(task, BATCHES * training.batch_size)
    optimizers = (make_optimiser(model, training), None)
    trainer = transformers.Trainer(WithLoss(model, task), settings, train_dataset=data, optimizers=optimizers)
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "hf") from None
    return transformers


def main(
    json: JsonOption = False,
    recipes: Annotated[str | None, typer.Option("--recipes", metavar="A,B,…", help="Only these recipes.")] = None,
) -> None:
    """Our training step beside a bare Hugging Face Trainer's, and the share of it that is spent on drawing samples."""
    costs = run(listed("--recipes", recipes, str) if recipes else CHOSEN, progress=say)
    if json:
        print_json({"rows": [asdict(cost) for cost in costs]})
        return
    print_table(
        ["recipe", "× Trainer", "step alone", "data, of our step"],
        [(cost.recipe, f"{cost.vs_trainer:.2f}", f"{cost.step_alone:.2f}", f"{cost.data_share:.1%}") for cost in costs],
    )


if __name__ == "__main__":
    start(main)
