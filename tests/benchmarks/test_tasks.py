"""The bench of the tasks: every task is measured, and the baseline makes the same picture."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from benchmarks import tasks as bench
from benchmarks.tasks import PerSample, WholeTiles, sampling_speed
from eureka.config import RunConfig
from eureka.data.catalogue import CATALOGUE
from eureka.data.store import located
from eureka.recipes import RECIPES
from eureka.tasks.pictures import PictureTask
from eureka.tasks.registry import TASKS

PICTURES_HERE = all(located(CATALOGUE[name]) for name in ("mnist", "fashion_mnist"))
needs_pictures = pytest.mark.skipif(not PICTURES_HERE, reason="`eureka data fetch mnist fashion_mnist` brings the pictures")


def test_every_task_is_measured() -> None:
    assert [RECIPES[name].task for name in bench.plan()] == TASKS.names()


def test_a_row_tells_speed_and_share_of_a_step(tiny: RunConfig) -> None:
    speed = sampling_speed(tiny)
    assert speed.task == "tiles"
    assert speed.samples_per_s > 1_000
    assert 0 < speed.share_of_step < 1
    assert speed.vs_per_sample is None


def test_data_that_is_not_here_is_a_reason_not_a_failure(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.delenv("EUREKA_DATA", raising=False)
    speeds, skipped = bench.run(["small/main"])
    assert speeds == []
    assert skipped[0].task == "main"
    assert "eureka data fetch" in skipped[0].reason


@needs_pictures
def test_the_baseline_paints_the_same_kind_of_picture() -> None:
    one, many = PerSample().sample(500)[0], TASKS.build("main").sample(500, Generator().manual_seed(0)).inputs
    assert one.shape == many.shape
    assert one.dtype == many.dtype
    torch.testing.assert_close(one.mean(dim=(0, 2, 3)), many.mean(dim=(0, 2, 3)), atol=0.02, rtol=0)
    torch.testing.assert_close(one.std(dim=(0, 2, 3)), many.std(dim=(0, 2, 3)), atol=0.02, rtol=0)


@needs_pictures
def test_the_old_way_paints_the_same_pictures_bit_for_bit() -> None:
    task = TASKS.build("main")
    assert isinstance(task, PictureTask)
    old = WholeTiles(task).sample(20, Generator().manual_seed(1))
    assert torch.equal(old, task.sample(20, Generator().manual_seed(1)).inputs)
