"""Unchanged training scripts, one for each way to train: every taped step is replayed with the same bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks.attach.run import SCRIPTS
from tests.capture.fork_server import Taped, tape

AT, STEPS = 3, 6
MECHANISMS = [
    *("plain", "nano", "modular", "lambda_mlp", "accelerate_loop", "hf_trainer", "lightning_fit", "fabric_loop", "lora"),
    *("scaler", "fused", "foreach", "sgd_onecycle", "sgd_steplr", "lbfgs", "ckpt", "ckpt_reentrant", "compiled"),
    *("workers_fork", "iterator_ends", "ema", "inplace", "loss_params", "validation_bn", "hydra_like", "click_like", "exits"),
    *("by_hand", "gan", "moe_aux", "mixup", "padded", "two_optimizers", "reinforce"),
]
NEEDS = {
    "accelerate_loop": "accelerate",
    "hf_trainer": "transformers",
    "lightning_fit": "lightning",
    "fabric_loop": "lightning",
    "click_like": "click",
}
ARGUMENTS = {"compiled": ["--backend", "aot_eager"]}  # C++ would be compiled for a minute; the benchmark does it


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_taped_step_of_a_script_is_replayed_with_the_same_bits(name: str, tmp_path: Path) -> None:
    if (package := NEEDS.get(name)) is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    taped = tape(SCRIPTS / f"{name}.py", ARGUMENTS.get(name, []), tmp_path, at=AT, steps=STEPS)
    assert taped == Taped(loss_exact=True, step_exact=True, steps=STEPS)


def test_every_taped_step_of_a_module_is_replayed_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "pkg_train").symlink_to(SCRIPTS / "pkg_train")
    taped = tape("pkg_train.train", [], tmp_path, at=AT, steps=STEPS)
    assert taped == Taped(loss_exact=True, step_exact=True, steps=STEPS)
