"""In a group of several processes nothing is examined, hangs or drifts apart: what cannot be done is refused in a sentence.

The processes are real ones, with gloo on this machine; `ranks.py` says what they do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

import eureka
from eureka.errors import RequestError
from eureka.group import DIAGNOSE_INSTEAD, INSTEAD, examining_alone, group_size, is_first, refuse_group, refuse_sharded

ROOT = Path(__file__).parents[2]
SECONDS = 150
"""A group that takes longer hangs; by itself it takes 25 s."""
VERBS = ("eureka.diagnose", "eureka.race", "eureka.clear_start")
MODES = ("advise", "race", "apply")
TRAINERS = {"hugging_face": ("transformers", "accelerate"), "lightning": ("lightning",)}
"""A job of `ranks.py`, and the packages that it needs."""
IN_A_SENTENCE = "works in one process, and this process belongs to a group of 2"

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")


def is_installed(trainer: str) -> bool:
    return all(find_spec(package) is not None for package in TRAINERS[trainer])


def group_of(size: int, folder: Path, *jobs: str) -> list[dict[str, Any]]:
    """Return what each rank has answered to each job. Where one hangs or fails, all are killed and the test fails."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",  # read by the trainers, and never opened: the ranks meet in a file
    }
    processes = []
    for rank in range(size):
        with (folder / f"{rank}.log").open("w") as log:
            command = [sys.executable, "-m", "tests.integrations.ranks", str(rank), str(size), str(folder), *jobs]
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))
    end = time.monotonic() + SECONDS
    try:
        while any(process.poll() is None for process in processes):
            if time.monotonic() > end or any(process.poll() for process in processes):
                break
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
    codes = [process.wait() for process in processes]
    assert codes == [0] * size, "".join((folder / f"{rank}.log").read_text() for rank in range(size))
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(size)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks answer; importing torch takes longer than all they do, so they do it one after the other."""
    folder = tmp_path_factory.mktemp("two")
    answers = group_of(2, folder, "refusals", "alone", *MODES, "resumed", "sharded", *filter(is_installed, TRAINERS))
    assert not [*folder.glob("before_rescue*")]
    return answers


@pytest.fixture(scope="module")
def only(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the only rank of a group answers."""
    return group_of(1, tmp_path_factory.mktemp("one"), "group_of_one", "sharded")[0]


def test_in_a_group_every_entry_point_refuses_in_a_sentence_on_both_ranks_and_changes_no_weight(
    both: list[dict[str, Any]],
) -> None:
    for rank in (answers["refusals"] for answers in both):
        assert rank["kept"]
        assert rank["winner"] == "rate_x1000", "there is something to apply"
        assert set(rank["sentences"]) == {*VERBS, "Race.apply", "eureka.attach"} == set(INSTEAD)
        for verb, sentence in rank["sentences"].items():
            assert sentence.startswith(f"{verb} {IN_A_SENTENCE}")
            assert sentence.count(". ") == 0
            assert sentence.endswith(f"{INSTEAD[verb]}.")


def test_rank_0_may_examine_a_model_while_the_others_wait_but_not_one_that_waits_for_them(both: list[dict[str, Any]]) -> None:
    first, second = (answers["alone"] for answers in both)
    assert first["causes"][0] == "lr_too_small"
    assert second["causes"] == []
    assert "pass model.module" in first["wrapped"]
    for rank in (first, second):
        assert rank["afterwards"].startswith("eureka.diagnose works in one process")


def assert_only_advised(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Both ranks have trained to the end as without a callback, and rank 0 alone has said what to call."""
    assert first["digest"] == second["digest"] == first["unwatched"] == second["unwatched"] != first["fresh"]
    for rank in (first, second):
        assert (rank["events"], rank["records"]) == (["plateau_entered"], 0)
    (sentence,) = first["logged"]
    assert sentence.startswith(f"The run is on a plateau since step {first['since']:.0f}, and examining it needs one process")
    assert DIAGNOSE_INSTEAD in sentence
    assert second["logged"] == []


@pytest.mark.parametrize("mode", MODES)
def test_a_monitor_in_a_group_only_advises_on_rank_0_and_weights_are_those_of_a_run_without_it(
    mode: str, both: list[dict[str, Any]]
) -> None:
    assert_only_advised(both[0][mode], both[1][mode])
    for rank in (answers[mode] for answers in both):
        assert (rank["handed"], rank["hooks"], rank["rates"]) == (0, 0, [1e-4])


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_callback_in_a_group_only_advises_on_rank_0_and_weights_are_those_of_a_run_without_it(
    trainer: str, both: list[dict[str, Any]]
) -> None:
    if not is_installed(trainer):
        pytest.skip(f"needs {' and '.join(TRAINERS[trainer])}")
    assert_only_advised(both[0][trainer], both[1][trainer])
    for rank in (answers[trainer] for answers in both):
        assert rank["wrapped"], "the trainer trains in the group"
        assert (rank["steps"], rank["probed"]) == (120, 12)
        assert rank["diagnose"].startswith(f"eureka.diagnose {IN_A_SENTENCE}")


def test_a_checkpoint_with_a_rescue_in_force_changes_nothing_in_a_group(both: list[dict[str, Any]]) -> None:
    first, second = (answers["resumed"] for answers in both)
    assert (first["hooks"], second["hooks"], first["due"], second["due"]) == (0, 0, False, False)
    (sentence,) = first["logged"]
    assert "rate_x10 cannot be applied again in a group" in sentence
    assert second["logged"] == []


def test_a_model_in_shards_is_refused_also_in_a_group_of_one(both: list[dict[str, Any]], only: dict[str, Any]) -> None:
    for answers, expected in ((both[0], IN_A_SENTENCE), (both[1], IN_A_SENTENCE), (only, "needs whole parameters, and ")):
        assert len(answers["sharded"]) == 7
        for name, sentences in answers["sharded"].items():
            assert set(sentences) == set(VERBS)
            for verb, sentence in sentences.items():
                assert sentence.startswith(f"{verb} {expected}"), (name, sentence)
                assert sentence.count(". ") == 0


def test_a_group_of_one_process_is_examined_as_any_run(only: dict[str, Any]) -> None:
    answers = only["group_of_one"]
    assert answers["causes"][0] == "lr_too_small"
    assert answers["winner"] == "rate_x1000"
    assert answers["spreads"] == pytest.approx([1.0] * 2, rel=1e-3)
    assert answers["monitor"]["records"] == 1
    assert answers["monitor"]["hooks"] == 1, "the winner is applied"


def named(name: str, module: str) -> nn.Module:
    """A model inside of a wrapper that is told by its type."""
    kind = type(name, (nn.Sequential,), {"__module__": module})
    model: nn.Module = kind(nn.Linear(2, 2))
    return nn.Sequential(model)


@pytest.mark.parametrize(
    ("name", "module", "wrapper"),
    [
        ("DeepSpeedEngine", "deepspeed.runtime.engine", "DeepSpeed"),
        ("PipelineEngine", "deepspeed.runtime.pipe.engine", "DeepSpeed"),
        ("DistributedDataParallel", "megatron.core.distributed.distributed_data_parallel", "Megatron"),
        ("FullyShardedDataParallel", "fairscale.nn", "FullyShardedDataParallel"),
    ],
)
def test_wrappers_of_other_packages_are_told_by_their_type(name: str, module: str, wrapper: str) -> None:
    with pytest.raises(RequestError, match=f"eureka.race needs whole parameters, and {wrapper}"):
        refuse_sharded(named(name, module), "eureka.race")


def test_parameters_of_zero_3_are_refused_without_their_engine() -> None:
    model = nn.Linear(2, 2)
    model.weight.ds_id = 0  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="DeepSpeed"):
        eureka.diagnose(model, [1], loss=lambda model, batch: batch)


@pytest.mark.parametrize("module", ["torch.nn.parallel.distributed", "my_own.package"])
def test_a_model_whose_name_only_looks_like_a_wrapper_is_not_refused(module: str) -> None:
    refuse_sharded(named("DistributedDataParallel", module), "eureka.race")
    refuse_sharded(named("Engine", module), "eureka.race")


def test_without_a_group_nothing_is_refused_and_this_process_is_the_first() -> None:
    assert not dist.is_initialized()
    assert (group_size(), is_first()) == (1, True)
    refuse_group("eureka.diagnose")


def test_who_examines_alone_lets_no_other_thread_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    refused: list[bool] = []

    def examine() -> None:
        try:
            refuse_group("eureka.diagnose")
            refused.append(False)
        except RequestError:
            refused.append(True)

    with examining_alone():
        examine()
        thread = threading.Thread(target=examine)
        thread.start()
        thread.join()
    examine()
    assert refused == [False, True, True]


def test_asking_for_the_group_imports_no_torch() -> None:
    code = (
        "import sys, eureka.group as g; g.refuse_group('eureka.race'); assert g.group_size() == 1; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
