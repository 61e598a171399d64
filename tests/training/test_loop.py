"""Training: what it computes, that it repeats to the last bit, and that an interruption changes nothing."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from eureka.config import RunConfig
from eureka.errors import DamagedRunError, FolderBusyError, RequestError
from eureka.experiment import build, run
from eureka.runs import Metrics, RunFolder, StoredConfig
from eureka.training.checkpoint import checkpoint_files, checkpoint_step, load_checkpoint
from eureka.training.config import TrainingConfig
from eureka.training.optimiser import make_optimiser
from eureka.training.signals import Interrupted


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    state = load_checkpoint(RunFolder(folder).checkpoints)
    assert state is not None
    weights: dict[str, torch.Tensor] = state["model"]
    return weights


def same(a: Path, b: Path) -> None:
    """Two runs are the same to the last bit: every logged number and every weight."""
    assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
    weights, others = final_weights(a), final_weights(b)
    assert weights.keys() == others.keys()
    for name in weights:
        assert torch.equal(weights[name], others[name]), name


def bare_loop(config: RunConfig) -> list[float]:
    """The same training written out in the plainest way."""
    training = config.training
    task, model = build(config)
    decayed = [p for n, p in model.named_parameters() if p.ndim > 1 and n not in ("positions", "cls")]
    others = [p for n, p in model.named_parameters() if p.ndim <= 1 or n in ("positions", "cls")]
    groups = [{"params": decayed, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=training.lr)
    generator = torch.Generator().manual_seed(training.seed)
    losses = []
    for step in range(training.steps):
        for group in optimiser.param_groups:
            group["lr"] = training.lr * min(1.0, (step + 1) / training.warmup)
        batch = task.sample(training.batch_size, generator)
        loss = F.cross_entropy(model(batch.inputs), batch.labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_the_loop_trains_exactly_as_a_bare_loop_does(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path)
    logged = {line.step: line.train_loss for line in RunFolder(tmp_path).metrics()}
    losses = bare_loop(tiny)
    previous = 0
    for step in sorted(logged):
        assert logged[step] == pytest.approx(sum(losses[previous:step]) / (step - previous), rel=1e-6)
        previous = step


def test_the_same_config_and_seed_give_the_same_run_bit_for_bit(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path / "a")
    torch.manual_seed(123)  # what happened before in the process must not matter
    run(tiny, tmp_path / "b")
    same(tmp_path / "a", tmp_path / "b")


def test_another_seed_gives_another_run(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path / "a")
    run(tiny.but({"training.seed": 1}), tmp_path / "b")
    assert (tmp_path / "a/metrics.jsonl").read_bytes() != (tmp_path / "b/metrics.jsonl").read_bytes()


class StopAt:
    """Ends a run as a signal would, at a given log."""

    def __init__(self, step: int, how: Any) -> None:
        self.step, self.how = step, how

    def __call__(self, line: Metrics) -> None:
        if line.step >= self.step:
            self.how()


@pytest.mark.parametrize("step", [5, 10, 20])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_resumed_run_equals_an_unbroken_one(
    tiny: RunConfig, tmp_path: Path, step: int, signum: signal.Signals
) -> None:
    run(tiny, tmp_path / "whole")
    with pytest.raises(Interrupted) as stopped:
        run(tiny, tmp_path / "broken", StopAt(step, lambda: signal.raise_signal(signum)))
    assert (stopped.value.signum, stopped.value.step) == (signum, step)
    run(tiny, tmp_path / "broken")
    same(tmp_path / "whole", tmp_path / "broken")


class Killed(BaseException):
    """Stands for the end of the process between a log and the next checkpoint."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("step", [5, 10, 15, 20])
def test_a_run_that_lost_everything_since_its_checkpoint_still_equals_an_unbroken_one(
    tiny: RunConfig, tmp_path: Path, step: int
) -> None:
    run(tiny, tmp_path / "whole")
    with pytest.raises(Killed):
        run(tiny, tmp_path / "broken", StopAt(step, kill))
    with (tmp_path / "broken/metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 25, "train_lo')  # torn by the kill
    run(tiny, tmp_path / "broken")
    same(tmp_path / "whole", tmp_path / "broken")


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tiny: RunConfig, tmp_path: Path, caplog: Any) -> None:
    run(tiny, tmp_path / "whole")
    with pytest.raises(Killed):
        run(tiny, tmp_path / "broken", StopAt(20, kill))
    newest = checkpoint_files(tmp_path / "broken/checkpoints")[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    run(tiny, tmp_path / "broken")
    same(tmp_path / "whole", tmp_path / "broken")
    assert "is damaged" in caplog.text


def test_only_the_last_two_checkpoints_are_kept(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path)
    assert [path.name for path in checkpoint_files(tmp_path / "checkpoints")] == ["step-000000021.pt", "step-000000024.pt"]


def test_a_finished_run_is_only_read(tiny: RunConfig, tmp_path: Path) -> None:
    first = run(tiny, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = run(tiny, tmp_path)
    assert second.outcome == first.outcome
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_folder_belongs_to_one_config_for_ever(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path)
    with pytest.raises(RequestError, match=r"another config \(training\.lr was 0\.001 and is now 0\.01\); choose another folder"):
        run(tiny.but({"training.lr": 0.01}), tmp_path)


def test_two_processes_cannot_work_on_one_run(tiny: RunConfig, tmp_path: Path) -> None:
    with RunFolder(tmp_path).held(), pytest.raises(FolderBusyError, match="another process is at work on this run"):
        run(tiny, tmp_path)


def test_a_diverging_run_ends_as_diverged_with_its_step(tiny: RunConfig, tmp_path: Path) -> None:
    result = run(tiny.but({"training.lr": 1e30}), tmp_path)
    assert result.outcome.status == "diverged"
    assert 1 <= result.outcome.steps < tiny.training.steps
    assert result.eureka_step is None
    assert all(math.isfinite(line.train_loss) for line in RunFolder(tmp_path).metrics())


def test_a_damaged_log_is_an_error_with_the_line(tmp_path: Path) -> None:
    good = '{"step": 1, "train_loss": 1, "train_accuracy": 0.5, "validation_loss": 1, "validation_accuracy": null, "lr": 0.1}\n'
    (tmp_path / "metrics.jsonl").write_text(f"{good}nonsense\n{good}")
    with pytest.raises(DamagedRunError, match=r"metrics\.jsonl: line 2 is not what a run writes \(Invalid JSON"):
        RunFolder(tmp_path).metrics()
    (tmp_path / "metrics.jsonl").write_text(f'{good}{{"step": 1}}\n')
    with pytest.raises(DamagedRunError, match=r"line 2 is not what a run writes \(train_loss: Field required\)"):
        RunFolder(tmp_path).metrics()


def test_the_folder_explains_the_run(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path)
    folder = RunFolder(tmp_path)
    assert folder.config() == StoredConfig(json.loads(json.dumps(tiny.to_json())))
    assert folder.environment()["torch"] == torch.__version__
    assert [level.accuracy for level in folder.levels()] == pytest.approx([0.55, 1.0])
    assert [line.step for line in folder.metrics()] == [5, 10, 15, 20, 24]


def test_an_early_stop_ends_the_run_the_asked_number_of_steps_after_its_moment(tmp_path: Path, tiny: RunConfig) -> None:
    # with little noise the leap comes within seconds
    config = tiny.but(
        {"task.noise": 0.1, "task.features": 16, "model.dim": 32, "model.depth": 2, "training.steps": 1500, "training.lr": 2e-3}
        | {"training.batch_size": 128, "training.early_stop": True, "training.early_stop_after": 15, "training.warmup": 20}
    )
    result = run(config, tmp_path)
    assert result.outcome.status == "stopped_early"
    assert result.eureka_step is not None
    assert result.outcome.steps == result.eureka_step + 15
    onset = result.outcome.onset_step
    assert onset is not None
    assert onset <= result.eureka_step
    steps = [checkpoint_step(path) for path in checkpoint_files(tmp_path / "checkpoints")]
    assert len(steps) == 3, "the last two, and one from before the leap"
    assert 0 <= onset - steps[0] < config.training.checkpoint_every


def test_weight_decay_spares_vectors_positions_and_class_token(tiny: RunConfig) -> None:
    _, model = build(tiny)
    optimiser = make_optimiser(model, TrainingConfig())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ({names[id(p)] for p in group["params"]} for group in optimiser.param_groups)
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.05, 0.0]
    assert {"positions", "cls", "norm.weight", "head.bias"} <= kept
    assert {"embed.project.weight", "blocks.0.attention.qkv.weight", "head.weight"} <= decayed
    assert decayed | kept == set(names.values())


def test_scheduled_operators_are_told_the_step(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"attention.name": "heat_treatment"})
    run(config, tmp_path / "hot")
    run(config.but({"attention.share": 1.0}), tmp_path / "slow")
    hot, slow = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("hot", "slow"))
    assert hot != slow
