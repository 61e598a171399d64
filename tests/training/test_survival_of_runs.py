"""Runs survive what happens to processes and disks: nothing lost, nothing damaged, the result the same to the last bit."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from eureka.config import RunConfig, run_config
from eureka.errors import DamagedRunError, RequestError
from eureka.experiment import run
from eureka.runs import RunFolder, StoredConfig
from eureka.training.checkpoint import checkpoint_files, load_checkpoint

WORKER = [sys.executable, "-m", "eureka.study.worker"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def prepared(config: RunConfig, path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.create()
    folder.write_config(StoredConfig(config.to_json()))
    return folder


def start(folder: RunFolder) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*WORKER, str(folder.path), str(os.getpid())], env=ENVIRONMENT, stderr=subprocess.PIPE)


def weights(folder: RunFolder) -> bytes:
    import torch

    state = load_checkpoint(folder.checkpoints)
    assert state is not None
    return b"".join(tensor.numpy().tobytes() for tensor in state["model"].values() if isinstance(tensor, torch.Tensor))


def test_killed_with_sigkill_at_random_moments_a_run_equals_an_unbroken_one(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but(
        {"training.steps": 800, "training.checkpoint_every": 10, "training.log_every": 5, "training.probe_every": 15}
    )
    whole = prepared(config, tmp_path / "whole")
    run(config, whole)
    broken = prepared(config, tmp_path / "broken")
    rng, kills = random.Random(7), 0
    while broken.result() is None:
        process = start(broken)
        logged, deadline = len(broken.metrics()), time.monotonic() + 60
        while process.poll() is None and len(broken.metrics()) <= logged:  # training has begun again
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.25))
        if kills < 4 and process.poll() is None:
            process.kill()
            kills += 1
        _, errors = process.communicate(timeout=120)
        assert process.returncode in (0, -9), errors.decode()
    assert kills >= 3
    assert broken.metrics_file.read_bytes() == whole.metrics_file.read_bytes()
    assert broken.attention_file.read_bytes() == whole.attention_file.read_bytes()
    assert [path.read_bytes() for path in broken.maps().values()] == [path.read_bytes() for path in whole.maps().values()]
    assert weights(broken) == weights(whole)


def test_a_full_disk_ends_the_run_with_a_sentence_and_more_room_lets_it_go_on(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"training.steps": 200})
    whole = prepared(config, tmp_path / "whole")
    run(config, whole)
    full = prepared(config, tmp_path / "full")
    room = whole.metrics_file.stat().st_size // 2  # no file may grow beyond this, as on a disk that is full

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    command = [*WORKER, str(full.path), str(os.getpid())]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, preexec_fn=limit, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("cannot write ")
    assert done.stderr.count("\n") == 1
    assert full.result() is None
    assert not list(full.path.rglob(".*.pt.*")), "no half-written file is left"
    assert subprocess.run(command, env=ENVIRONMENT, timeout=120).returncode == 0
    assert full.metrics_file.read_bytes() == whole.metrics_file.read_bytes()


def test_a_folder_that_holds_nonsense_is_a_sentence_and_stays_as_it_is(tiny: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{nonsense")
    with pytest.raises(DamagedRunError, match=r"config\.json is not what a run writes \(Invalid JSON"):
        run(tiny, tmp_path)
    assert (tmp_path / "config.json").read_text() == "{nonsense"


def test_a_second_process_on_one_run_leaves_at_once_and_the_first_goes_on(tiny: RunConfig, tmp_path: Path) -> None:
    folder = prepared(tiny.but({"training.steps": 100_000}), tmp_path)
    first = start(folder)
    deadline = time.monotonic() + 60
    while not folder.metrics():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = start(folder)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert b"another process is at work on this run" in errors
    assert first.poll() is None
    first.terminate()
    first.communicate(timeout=60)
    assert first.returncode == 143
    assert checkpoint_files(folder.checkpoints)


@pytest.mark.parametrize("processes", [2])
def test_torchrun_gives_the_losses_of_one_process_for_the_same_global_batch(
    tiny: RunConfig, tmp_path: Path, processes: int
) -> None:
    changes = {"steps": 30, "warmup": 5, "log_every": 5, "batch_size": 16, "validation_samples": 64}
    settings = [word for key, value in changes.items() for word in ("--set", f"training.{key}={value}")] + [
        "--set",
        "model.dim=16",
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    for name, launcher in (("one", [sys.executable, "-m"]), ("many", torchrun)):
        command = [*launcher, "eureka", "run", "tiles", *settings, "--out", str(tmp_path / name)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("No Eureka-moment in 30 steps.")
        assert done.stdout.count(str(tmp_path / name)) == 1, "the first process speaks for all"
    folders = [RunFolder(next((tmp_path / name).iterdir())) for name in ("one", "many")]
    assert [line.step for line in folders[1].attention()] == [0], "only the first process writes"
    assert list(folders[1].maps()) == list(folders[0].maps())
    one, many = (folder.metrics() for folder in folders)
    assert [line.step for line in one] == [line.step for line in many]
    for a, b in zip(one, many, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, abs=1e-5)
        assert a.validation_loss == pytest.approx(b.validation_loss, abs=1e-5)


def test_a_batch_that_cannot_be_shared_evenly_is_refused(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(RequestError, match=r"training.batch_size \(16\) must be a multiple of the number of processes \(3\)"):
        run(tiny, tmp_path)


def test_a_device_that_is_not_there_is_a_sentence(tiny: RunConfig, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(RequestError, match=r"training\.device cuda: PyTorch finds no such device on this machine; use cpu"):
        run(tiny.but({"training.device": "cuda"}), tmp_path)


def test_bfloat16_trains_and_keeps_its_weights_in_float32(tiny: RunConfig, tmp_path: Path) -> None:
    import torch

    run(tiny, tmp_path / "full")
    run(tiny.but({"training.precision": "bfloat16"}), tmp_path / "half")
    full, half = (RunFolder(tmp_path / name).metrics()[-1] for name in ("full", "half"))
    assert full.train_loss != half.train_loss
    assert full.train_loss == pytest.approx(half.train_loss, abs=0.1)
    state = load_checkpoint(tmp_path / "half/checkpoints")
    assert state is not None
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32}


def test_tensorboard_shows_the_numbers_of_the_log_by_the_same_names(tiny: RunConfig, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tiny.but({"training.tensorboard": True}), tmp_path)
    shown = events.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    shown.Reload()
    for line in map(asdict, RunFolder(tmp_path).metrics()):
        for name in set(line) - {"step"}:
            value = next(event.value for event in shown.Scalars(name) if event.step == line["step"])
            assert value == pytest.approx(line[name], rel=1e-6)


def test_a_config_survives_its_json(tiny: RunConfig) -> None:
    assert run_config(**json.loads(json.dumps(tiny.to_json()))) == tiny
