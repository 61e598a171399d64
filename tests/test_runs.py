"""A run folder is read and written as typed records, and a file of another shape is named in one sentence."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from eureka.errors import DamagedRunError
from eureka.runs import (
    Leap,
    Level,
    LinearProbe,
    Metrics,
    Origin,
    Outcome,
    ProbeRecord,
    Probes,
    Readings,
    RecordLog,
    RunFolder,
    SiteRecord,
    StoredConfig,
    TaskRecord,
    find_runs,
    read_lines,
    read_run,
)

CONFIG = StoredConfig(
    {
        "task": {"name": "tiles"},
        "model": {"name": "encoder"},
        "attention": {"name": "softmax"},
        "training": {"lr": 0.0003, "seed": 2, "steps": 1200},
    }
)
OUTCOME = Outcome("stopped_early", 800, 1.5, 8000, 600, 575, (Leap(0, 575, 600),), 0.1, 0.98)
LINE = Metrics(25, 2.0, 0.1, 1.9, 0.2, 3e-4)
LATER = Metrics(50, 1.8, 0.2, 1.7, 0.3, 3e-4)
PROBE = ProbeRecord(50, [SiteRecord(0, "blocks.0", {"entropy": [0.5, 0.25]})])
READING = LinearProbe(
    site="a", layer=0, head=None, representation="block", answer="x", accuracy=0.5, chance=0.5, bits=1.0, uniform_bits=1.0
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create()
    return made


def test_every_record_comes_back_as_it_was_written(folder: RunFolder) -> None:
    task = TaskRecord([Level("the last step", 0.624, 0.55), Level("all steps", 0.0, 1.0)], ["a", "b"])
    origin, probes = Origin("tiles", {"training.lr": 0.001}), Probes(PROBE, {"after": Readings(50, [READING])})
    folder.write_config(CONFIG)
    folder.write_origin(origin)
    folder.write_environment({"torch": "2.13.0"})
    folder.write_task(task)
    folder.write_result(OUTCOME)
    folder.write_probes(probes)
    assert folder.config() == CONFIG
    assert folder.origin() == origin
    assert folder.environment() == {"torch": "2.13.0"}
    assert (folder.task(), folder.levels()) == (task, task.levels)
    assert folder.result() == OUTCOME
    assert folder.probes() == probes
    run = read_run(folder)
    assert run is not None
    assert (run.config.fix, run.config.lr, run.config.seed, run.config.steps, run.eureka_step) == ("softmax", 3e-4, 2, 1200, 600)


def test_a_folder_without_files_says_so_by_empty_records(folder: RunFolder) -> None:
    assert (folder.config(), folder.origin(), folder.result(), folder.probes(), read_run(folder)) == (None,) * 5
    assert (folder.environment(), folder.levels(), folder.metrics(), folder.attention()) == ({}, [], [], [])


def test_a_value_that_is_not_a_number_is_null_on_disk_and_nan_in_memory(folder: RunFolder) -> None:
    record = ProbeRecord(0, [SiteRecord(0, "a", {"grad_ratio": [math.nan, 1.0]})])
    log = RecordLog(folder.attention_file)
    log.open(0)
    log.append(record)
    assert json.loads(folder.attention_file.read_text())["sites"][0]["values"] == {"grad_ratio": [None, 1.0]}
    [found] = folder.attention()
    assert math.isnan(found.sites[0].values["grad_ratio"][0])
    assert found.sites[0].mean("grad_ratio") == 1.0


def test_a_log_goes_on_after_what_its_checkpoint_knew_and_leaves_out_a_torn_line(folder: RunFolder) -> None:
    log = RecordLog(folder.metrics_file)
    log.open(0)
    log.append(LINE)
    known = log.size
    log.append(LATER)
    with folder.metrics_file.open("ab") as file:
        file.write(b'{"step": 7')
    assert folder.metrics() == [LINE, LATER]
    log.open(known)
    assert folder.metrics() == [LINE] == read_lines(folder.metrics_file, Metrics, known)


WRONG_VALUES = [('"seed": 2', '"seed": "zero"'), ("0.0003", "null"), ("1200", "true"), ('"tiles"', "[]")]
WRONG = {
    "result.json": ["[]", '{"status": "asleep"}', "nonsense", json.dumps(OUTCOME.to_json() | {"steps": "many"})],
    "task.json": ['{"levels": 3}', '{"levels": [{"knows": "x", "loss": "low", "accuracy": 1}]}'],
    "recipe.json": ['{"recipe": 3}', "{}"],
    "probes.json": ['{"record": {"step": 1, "sites": [3]}}', '{"linear": []}'],
    "environment.json": ['{"torch": 2}'],
    "config.json": ["[]", "", *(json.dumps(CONFIG.parts).replace(*change) for change in WRONG_VALUES)],
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, contents in WRONG.items() for content in contents])
def test_a_file_of_another_shape_is_named_in_one_sentence(folder: RunFolder, name: str, content: str) -> None:
    (folder.path / name).write_text(content)
    read = {"result.json": folder.result, "task.json": folder.task, "recipe.json": folder.origin, "probes.json": folder.probes}
    reader = read.get(name) or {"environment.json": folder.environment, "config.json": folder.config}[name]
    with pytest.raises(
        DamagedRunError, match=rf"{name} is not what a run writes \(.+\); move the run folder away to start again\."
    ):
        reader()


def test_a_line_of_another_shape_is_named_by_its_number(folder: RunFolder) -> None:
    folder.metrics_file.write_text(json.dumps(asdict(LINE)) + '\n{"step": 1.5}\n')
    with pytest.raises(DamagedRunError, match=r"metrics\.jsonl: line 2 is not what a run writes \(step: "):
        folder.metrics()


def test_the_config_of_something_else_is_not_that_of_a_run(folder: RunFolder) -> None:
    (folder.path / "config.json").write_text('{"hidden_size": 64, "architectures": ["GPT2Model"]}')
    assert find_runs(folder.path.parent) == [folder]
    assert folder.config() is None
    assert read_run(folder) is None
