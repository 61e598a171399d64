"""What must not change: the losses of an existing config, and the keys of every JSON document of the command line.

``python tests/test_recorded.py losses`` (or ``keys``) writes the record anew: only for a change that is meant to change them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eureka
from eureka.cli.main import app
from eureka.recipes import recipe

RECORDED = Path(__file__).parent / "recorded"
SHORT = {"training.steps": 12, "training.warmup": 3, "training.log_every": 3, "training.validation_samples": 32}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiles": ("tiles", {"training.batch_size": 64}),
    "digits, norm_softmax": ("digits", {"training.batch_size": 64, "attention.name": "norm_softmax"}),
    "vit, heat_treatment": (
        "digits",
        {
            "model.name": "vit",
            "model.dim": 32,
            "model.depth": 2,
            "model.patch": 8,
            "attention.name": "heat_treatment",
            "training.batch_size": 32,
        },
    ),
    "induction, qk_norm": ("small/induction", {"attention.name": "qk_norm", "training.batch_size": 8}),
    "regression by GPT-2": ("hf/gpt2_regression", {"attention.name": "norm_softmax_var", "training.batch_size": 8}),
    "resnet": ("digits", {"model.name": "resnet9", "model.width": 8, "training.batch_size": 16}),
}


def machine() -> dict[str, str]:
    """What decides the last bits besides the config."""
    import torch

    info = Path("/proc/cpuinfo")
    lines = info.read_text().split("\n\n")[0].splitlines() if info.exists() else []
    wanted = ("model name", "cpu family", "model\t", "stepping", "flags")
    cpu = " ".join(line.partition(":")[2].strip() for line in lines if line.startswith(wanted)) or platform.processor()
    digest = hashlib.sha256(cpu.encode()).hexdigest()[:16]
    return {"torch": torch.__version__, "cpu": digest, "kernels": torch.backends.cpu.get_cpu_capability()}


def losses(name: str, folder: Path) -> list[list[str]]:
    """Training and validation loss of every logged step, exactly."""
    base, changes = CONFIGS[name]
    eureka.run(recipe(base).but(SHORT | changes), folder / "run")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [[float(line[key]).hex() for key in ("train_loss", "validation_loss")] for line in lines]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_losses_of_an_existing_config_are_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = json.loads((RECORDED / "losses.json").read_text())
    found = losses(name, tmp_path)
    if machine() == recorded["machine"]:
        assert found == recorded["losses"][name]  # bit for bit
    values = [[[float.fromhex(value) for value in pair] for pair in record] for record in (found, recorded["losses"][name])]
    np.testing.assert_allclose(values[0], values[1], rtol=2e-3)  # another processor rounds otherwise: up to 3e-4 has been seen


def commands(folder: Path) -> dict[str, list[str]]:
    """Every verb that prints a document, on something small."""
    tiny = ["training.steps=30", "training.warmup=5", "training.batch_size=16", "training.validation_samples=32", "model.dim=16"]
    sets = [word for change in tiny for word in ("--set", change)]
    study, run = str(folder / "study"), str(folder / "run")
    (folder / "loss.csv").write_text("step,loss\n" + "".join(f"{i},{2.0 if i < 300 else 0.2}\n" for i in range(600)))
    return {
        "compare": ["compare", "tiles", "--fix", "softmax,temperature", "--seeds", "1", "--out", study, *sets],
        "study status": ["study", "status", study],
        "run": ["run", "tiles", "--out", run, *sets],
        "probe": ["probe", f"{run}/*"],
        "detect": ["detect", str(folder / "loss.csv")],
        "diagnose": ["diagnose", str(folder / "loss.csv")],
        "recipes": ["recipes"],
        "fixes": ["fixes"],
        "fixes show": ["fixes", "show", "temperature"],
        "tasks": ["tasks"],
        "tasks show": ["tasks", "show", "tiles", "--out", str(folder / "grid.png")],
        "data list": ["data", "list"],
        "bench attention": ["bench", "attention", "--quick", "--op", "temperature"],
    }


def shape(value: Any) -> Any:
    """The keys of a document, down to its leaves; a list is what its elements have in common and what some of them have."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for each in value:
            if isinstance(each, dict):
                merged |= shape(each)
        return [merged] if merged else []
    return "value"


def documents(folder: Path) -> dict[str, Any]:
    found = {}
    for name, words in commands(folder).items():
        arguments = [str(next(Path(word).parent.glob("*"))) if word.endswith("/*") else word for word in words]
        done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, (name, done.stderr)
        found[name] = shape(json.loads(done.stdout))
    return found | {"summary.json": shape(json.loads((folder / "study" / "summary.json").read_text()))}


def test_every_json_document_has_the_keys_it_had(tmp_path: Path) -> None:
    recorded = json.loads((RECORDED / "keys.json").read_text())
    found = documents(tmp_path)
    assert found == recorded


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        if "losses" in sys.argv:
            recorded: dict[str, list[list[str]]] = {}
            for key in CONFIGS:
                (here / key).mkdir()
                recorded[key] = losses(key, here / key)
            content = {"machine": machine(), "losses": recorded}
            (RECORDED / "losses.json").write_text(json.dumps(content, indent=1) + "\n")
        if "keys" in sys.argv:
            (RECORDED / "keys.json").write_text(json.dumps(documents(here), indent=1) + "\n")
