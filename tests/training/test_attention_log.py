"""What a run writes about its attention: that it is true, that it survives, and that it changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eureka.attention.registry import FIXES
from eureka.config import RunConfig, run_config
from eureka.errors import DamagedRunError, RequestError
from eureka.experiment import build, run
from eureka.probes.induction import induction_scores
from eureka.runs import INDUCTION, ProbeRecord, RunFolder
from eureka.training.checkpoint import checkpoint_files, load_checkpoint, save_checkpoint
from eureka.training.loop import VALIDATION_SEED
from eureka.training.signals import Interrupted
from tests.training.killing import Killed, killed_at


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    state = load_checkpoint(folder / "checkpoints")
    assert state is not None
    weights: dict[str, torch.Tensor] = state["model"]
    return weights


def written(folder: Path) -> dict[str, bytes]:
    """Everything about attention that is in a run folder."""
    files = [folder / "attention.jsonl", *sorted((folder / "attention").glob("*"))]
    return {path.name: path.read_bytes() for path in files}


def heads_of(model: Any, inputs: torch.Tensor) -> torch.Tensor:
    """q, k and v of the only block, (3, B, H, N, D), written out."""
    block = model.blocks[0]
    x = torch.cat([model.cls.expand(len(inputs), -1, -1), model.embed(inputs)], dim=1) + model.positions
    qkv: torch.Tensor = block.attention.qkv(block.norm1(x))
    return qkv.reshape(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)


def softmax_weights(model: Any, inputs: torch.Tensor, temperature: float | None = None) -> torch.Tensor:
    q, k, _ = heads_of(model, inputs)
    return torch.softmax(q @ k.transpose(-1, -2) / (temperature or math.sqrt(q.shape[-1])), dim=-1)


def measured_step(config: RunConfig, folder: Path, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of attention and the gradient of qkv in one step, trained by the loop up to there and then by hand."""
    before = config.but({"training.steps": step, "training.probe_every": 0}) if step else None
    task, model = build(config)
    generator = torch.Generator().manual_seed(config.training.seed)
    if before is not None:
        run(before, folder)
        model.load_state_dict(weights_of(folder))
        for _ in range(step):
            task.sample(config.training.batch_size, generator)
    batch = task.sample(config.training.batch_size, generator)
    task.loss(model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
    gradient = model.get_parameter("blocks.0.attention.qkv.weight").grad
    assert gradient is not None
    return softmax_weights(model, batch.inputs), gradient


@pytest.mark.parametrize("step", [0, 14])
def test_a_line_tells_what_the_training_step_itself_did(tiny: RunConfig, tmp_path: Path, step: int) -> None:
    config = tiny.but({"attention.name": "softmax", "training.probe_every": 7})
    run(config, tmp_path / "run")
    lines = RunFolder(tmp_path / "run").attention()
    assert [line.step for line in lines] == [0, 7, 14, 21]
    [site] = next(line for line in lines if line.step == step).sites
    assert site.name == "blocks.0.attention"
    share = next(line for line in lines if line.step == step).position_share
    assert share is not None
    assert (share.site, share.parameters, len(share.logits)) == ("blocks.0.attention", ["positions"], 2)
    assert 0 < share.of_input < 1
    p, gradient = measured_step(config, tmp_path / "twin", step)
    entropy = -(p * p.log()).sum(dim=-1) / math.log(p.shape[-1])
    assert site.values["entropy"] == pytest.approx(entropy.mean(dim=(0, 2)).tolist(), rel=1e-5)
    assert site.values["participation"] == pytest.approx(p.square().sum(dim=-1).mean(dim=(0, 2)).tolist(), rel=1e-5)
    sizes = gradient.abs().view(3, 2, -1, gradient.shape[-1]).mean(dim=(2, 3)).tolist()
    for name, values in zip(("grad_q", "grad_k", "grad_v"), sizes, strict=True):
        assert site.values[name] == pytest.approx(values, rel=1e-4)


CHANGES: dict[str, dict[str, Any]] = {
    **{name: {"attention.name": name} for name in FIXES.names()},
    "something random in the model": {"model.drop_path": 0.4, "model.depth": 2},
    "bfloat16": {"training.precision": "bfloat16"},
}


def of_hugging_face(tiny: RunConfig) -> RunConfig:
    pytest.importorskip("transformers")
    task, model = {"name": "regression", "pairs": 4}, {"name": "hf_gpt2", "dim": 16, "depth": 1}
    return run_config(task=task, model=model, attention={"name": "norm_softmax"}, training=tiny.training)


def of_induction(tiny: RunConfig, **model: Any) -> RunConfig:
    task = {"name": "induction", "vocabulary": 12, "length": 12, "shortest_lag": 3, "longest_lag": 5}
    model = {"name": "decoder", "dim": 16, "depth": 2, **model}
    return run_config(task=task, model=model, attention={"name": "softmax"}, training=tiny.training)


def test_a_task_that_repeats_tokens_logs_the_induction_head_scores_of_the_training_step_itself(
    tiny: RunConfig, tmp_path: Path
) -> None:
    config = of_induction(tiny)
    run(config.but({"training.probe_every": 7}), tmp_path)
    lines = RunFolder(tmp_path).attention()
    assert [line.step for line in lines] == [0, 7, 14, 21]
    task, model = build(config)
    batch = task.sample(config.training.batch_size, torch.Generator().manual_seed(config.training.seed))
    for site, scores in zip(lines[0].sites, induction_scores(model, batch.inputs), strict=True):
        for measure, values in scores.values.items():  # every place that has a target is asked for
            assert site.values[measure] == pytest.approx(values, rel=1e-4), measure
    assert lines[0].sites[0].values["copying"] != lines[-1].sites[0].values["copying"]


def test_a_task_that_repeats_nothing_logs_no_such_scores(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path)
    assert not any(set(INDUCTION) & set(site.values) for line in RunFolder(tmp_path).attention() for site in line.sites)


@pytest.mark.parametrize("what", [*CHANGES, "Hugging Face", "induction", "induction by Hugging Face"])
def test_looking_changes_no_loss_and_no_weight_by_a_single_bit(tiny: RunConfig, tmp_path: Path, what: str) -> None:
    others: dict[str, Callable[[], RunConfig]] = {
        "Hugging Face": lambda: of_hugging_face(tiny),
        "induction": lambda: of_induction(tiny),
        "induction by Hugging Face": lambda: of_induction(tiny, name="hf_gpt2"),
    }
    config = others[what]() if what in others else tiny.but(CHANGES[what])
    for every in (0, 3):
        run(config.but({"training.probe_every": every}), tmp_path / str(every))
    blind, seeing = tmp_path / "0", tmp_path / "3"
    assert len(RunFolder(seeing).attention()) == 8
    assert len(RunFolder(seeing).maps()) == 13
    assert not (blind / "attention.jsonl").exists()
    assert not (blind / "attention").exists()
    assert (blind / "metrics.jsonl").read_bytes() == (seeing / "metrics.jsonl").read_bytes()
    for (name, a), b in zip(weights_of(blind).items(), weights_of(seeing).values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("step", [5, 10, 15, 20])
def test_a_killed_and_resumed_run_has_written_the_same_bytes_about_its_attention(
    tiny: RunConfig, tmp_path: Path, step: int
) -> None:
    config = tiny.but({"training.probe_every": 4, "attention.name": "heat_treatment"})
    run(config, tmp_path / "whole")
    with pytest.raises(Killed):
        run(config, tmp_path / "broken", killed_at(step))
    with (tmp_path / "broken/attention.jsonl").open("ab") as file:
        file.write(b'{"step": 24, "sit')  # torn by the kill
    run(config, tmp_path / "broken")
    assert written(tmp_path / "broken") == written(tmp_path / "whole")


def test_the_maps_are_the_weights_on_the_first_validation_sample(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"attention.name": "softmax", "training.steps": 46})
    run(config, tmp_path)
    maps = RunFolder(tmp_path).maps()
    assert list(maps) == [*range(0, 46, 3), 46], "evenly spaced, and the last"
    task, model = build(config)
    sample = task.sample(config.training.validation_samples, torch.Generator().manual_seed(VALIDATION_SEED), "validation").inputs[
        :1
    ]
    for step in (0, 46):
        if step:
            model.load_state_dict(weights_of(tmp_path))
        found = np.load(maps[step], allow_pickle=False)
        assert (found.dtype, found.shape) == (np.float16, (1, 2, 5, 5))
        assert found[0] == pytest.approx(softmax_weights(model, sample)[0].detach().numpy(), abs=1e-3)
    assert not np.array_equal(np.load(maps[0]), np.load(maps[46]))


def test_a_scheduled_operator_is_drawn_as_it_is_at_that_step(tiny: RunConfig, tmp_path: Path) -> None:
    """The first weights are as sharp as the temperature is low, and the last ones are at its end, not a step before."""
    heat = {"attention.name": "heat_treatment", "attention.start": 0.01, "attention.end": 2.0, "attention.share": 1.0}
    config = tiny.but({**heat, "model.init_std": 0.3, "training.steps": 6})
    run(config, tmp_path)
    _, model = build(config)
    first = np.load(RunFolder(tmp_path).maps()[0])
    assert first.max() > 0.9
    model.load_state_dict(weights_of(tmp_path))
    sample = build(config)[0].sample(64, torch.Generator().manual_seed(VALIDATION_SEED), "validation").inputs[:1]
    expected = softmax_weights(model, sample, temperature=2.0)[0].detach().numpy()
    assert np.load(RunFolder(tmp_path).maps()[6])[0] == pytest.approx(expected, abs=1e-3)


def test_a_model_without_attention_writes_nothing_about_it(tiny: RunConfig, tmp_path: Path) -> None:
    config = run_config(
        task={"name": "digits"},
        model={"name": "resnet9", "width": 2, "stem": "small"},
        attention={"name": "softmax"},
        training=tiny.training.model_copy(update={"steps": 6}),
    )
    run(config, tmp_path)
    assert RunFolder(tmp_path).attention() == []
    assert not (tmp_path / "attention.jsonl").exists()
    assert RunFolder(tmp_path).maps() == {}


def test_many_tokens_have_lines_and_no_maps(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"task.tokens": 25, "training.steps": 5, "training.batch_size": 2, "training.validation_samples": 2})
    run(config, tmp_path)
    assert [line.step for line in RunFolder(tmp_path).attention()] == [0]
    assert RunFolder(tmp_path).maps() == {}


def test_a_checkpoint_from_before_attention_was_written_goes_on(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny.but({"training.probe_every": 0}), tmp_path / "whole")
    config = tiny.but({"training.probe_every": 5})
    with pytest.raises(Killed):
        run(config, tmp_path / "old", killed_at(15))
    for path in checkpoint_files(tmp_path / "old/checkpoints"):
        state = torch.load(path, weights_only=True)
        del state["attention"]
        torch.save(state, path)
    (tmp_path / "old/attention.jsonl").unlink()
    run(config, tmp_path / "old")
    assert (tmp_path / "old/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()
    assert [line.step for line in RunFolder(tmp_path / "old").attention()] == [15, 20]


def test_lines_that_were_deleted_are_missing_and_the_run_goes_on(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"training.probe_every": 5})
    with pytest.raises(Killed):
        run(config, tmp_path, killed_at(15))
    (tmp_path / "attention.jsonl").unlink()
    run(config, tmp_path)
    assert [line.step for line in RunFolder(tmp_path).attention()] == [15, 20]


def test_a_log_that_has_lost_lines_is_not_gone_on_with(tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tiny, tmp_path, killed_at(20))
    (tmp_path / "metrics.jsonl").write_bytes((tmp_path / "metrics.jsonl").read_bytes()[:100])
    with pytest.raises(DamagedRunError, match=r"metrics\.jsonl is shorter than its checkpoint knows; move the run folder away"):
        run(tiny, tmp_path)


def test_the_setting_does_not_rename_old_runs(tiny: RunConfig) -> None:
    old = tiny.to_json()
    del old["training"]["probe_every"]
    assert run_config(**old).digest() == tiny.digest()
    assert "probe_every" not in tiny.chosen()["training"]
    with pytest.raises(RequestError, match="probe_every = -1 should be"):
        tiny.but({"training.probe_every": -1})


def test_tensorboard_shows_attention_too(tiny: RunConfig, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tiny.but({"training.tensorboard": True, "training.probe_every": 10}), tmp_path)
    shown = events.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    shown.Reload()
    for line in RunFolder(tmp_path).attention():
        values = line.sites[0].values["entropy"]
        scalars = shown.Scalars("attention/blocks.0.attention/entropy")
        assert next(e.value for e in scalars if e.step == line.step) == pytest.approx(sum(values) / len(values), rel=1e-5)
    shares = [line.position_share.of_logits for line in RunFolder(tmp_path).attention() if line.position_share is not None]
    assert [event.value for event in shown.Scalars("attention/position_share_of_logits")] == pytest.approx(shares, rel=1e-5)


def kept(folder: Path) -> list[int]:
    return [int(path.stem.removeprefix("step-")) for path in checkpoint_files(folder)]


def test_the_newest_checkpoint_before_the_onset_stays_with_the_last_two(tmp_path: Path) -> None:
    for step in range(10, 100, 10):
        save_checkpoint(tmp_path, step, {"step": step}, onset=45 if step >= 50 else None)
    assert kept(tmp_path) == [40, 80, 90]


def test_where_all_are_later_than_the_onset_the_oldest_stays(tmp_path: Path) -> None:
    for step in range(10, 100, 10):
        save_checkpoint(tmp_path, step, {"step": step}, onset=15 if step >= 60 else None)
    assert kept(tmp_path) == [40, 80, 90]


def test_an_onset_that_came_to_nothing_is_forgotten(tmp_path: Path) -> None:
    for step in range(10, 100, 10):
        save_checkpoint(tmp_path, step, {"step": step}, onset=35 if 40 <= step < 80 else None)
    assert kept(tmp_path) == [80, 90]


def test_an_interrupted_run_is_left_without_a_last_map(tiny: RunConfig, tmp_path: Path) -> None:
    """Only the end of a run is drawn out of turn: elsewhere an interruption would show."""
    import signal

    config = tiny.but({"training.steps": 80, "training.log_every": 7})
    with pytest.raises(Interrupted):
        run(config, tmp_path, lambda line: signal.raise_signal(signal.SIGTERM) if line.step == 14 else None)
    assert list(RunFolder(tmp_path).maps()) == [0, 4, 8, 12]


def test_a_torn_last_line_is_left_out_when_read(tmp_path: Path) -> None:
    (tmp_path / "attention.jsonl").write_text(json.dumps({"step": 0, "sites": []}) + '\n{"step": 5', encoding="utf-8")
    assert RunFolder(tmp_path).attention() == [ProbeRecord(0, [])]
