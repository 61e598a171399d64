"""The main job, from the command line, on runs small enough for a test."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eureka.cli.main import app
from eureka.cli.run_study import print_findings, write_summary
from eureka.config import RunConfig
from eureka.recipes import recipe
from eureka.runs import Outcome, RunFolder, find_runs
from eureka.study.plan import Study
from eureka.study.summary import summarise
from eureka.study.survival import Estimate, Times, speed_up

SMALL = [
    *("--set", "training.steps=40", "--set", "training.warmup=5", "--set", "training.log_every=10", "--set", "model.dim=16"),
    *("--set", "training.batch_size=16", "--set", "training.validation_samples=64", "--set", "training.checkpoint_every=10"),
]


def eureka(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "eureka", *arguments], cwd=cwd, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("study")
    done = eureka("compare", "tiles", "--seeds", "2", "--lr", "1e-3", *SMALL, "--json", cwd=folder)
    return folder, done


def test_json_is_one_document_with_a_row_for_each_fix_and_rate(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = study
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(row["fix"], row["lr"], row["seeds"]) for row in document["rows"]] == [
        ("softmax", 1e-3, [0, 1]),
        ("norm_softmax", 1e-3, [0, 1]),
    ]
    for row in document["rows"]:
        assert len(row["eureka_steps"]) == len(row["final_accuracy"]) == 2
        assert row["eureka_ratio"] == sum(step is not None for step in row["eureka_steps"]) / 2


def test_the_report_is_written_beside_the_runs(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = study
    page = folder / json.loads(done.stdout)["report"]
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_what_programs_read_is_kept_beside_the_runs(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = study
    document = json.loads(done.stdout)
    place = folder / document["folder"]
    assert json.loads((place / "summary.json").read_text(encoding="utf-8"))["comparisons"] == document["comparisons"]
    assert len((place / "runs.csv").read_text(encoding="utf-8").splitlines()) > 4


def test_every_run_keeps_its_recipe_and_the_keys_that_were_changed(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = study
    for run in find_runs(folder / json.loads(done.stdout)["folder"]):
        origin, config = run.origin(), run.config()
        assert origin is not None
        assert config is not None
        assert origin.recipe == "tiles"
        assert origin.changes.keys() >= {"training.lr", "training.steps", "model.dim"}
        assert recipe(origin.recipe).but(origin.changes) == RunConfig.from_json(config.parts)


def test_summary_and_report_together_read_each_run_and_bootstrap_each_comparison_once(
    study: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, done = study
    calls: Counter[str] = Counter()
    read = RunFolder.result

    def counted_read(run: RunFolder) -> Outcome | None:
        calls[run.name] += 1
        return read(run)

    def counted_bootstrap(baseline: Times, fix: Times, horizon: float, confidence: float) -> Estimate:
        calls["bootstrap"] += 1
        return speed_up(baseline, fix, horizon, confidence=confidence)

    monkeypatch.setattr(RunFolder, "result", counted_read)
    monkeypatch.setattr("eureka.study.comparison.speed_up", counted_bootstrap)
    runs = [run for run in find_runs(folder / json.loads(done.stdout)["folder"]) if "seed0" in run.name]
    write_summary("title", tmp_path, summarise(runs), [])
    assert (tmp_path / "report.html").exists()
    assert calls == dict.fromkeys([*(run.name for run in runs), "bootstrap"], 1)


def test_without_a_terminal_events_are_lines_on_standard_error(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = study
    assert "softmax, lr 0.001, seed 0: no Eureka-moment in 40 steps" in done.stderr


def test_the_same_command_again_repeats_nothing_and_more_seeds_reuse(
    study: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = study
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    done = eureka("compare", "tiles", "--seeds", "3", "--lr", "1e-3", *SMALL, "--fix", "softmax", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 runs are finished already." in done.stderr
    assert "0 of 3" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_run_uses_the_same_folders_as_compare(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = study
    before = sorted(path.parent.name for path in folder.rglob("metrics.jsonl"))
    done = eureka(
        "run", "tiles", "--set", "training.lr=1e-3", "--set", "attention.name=norm_softmax", *SMALL, "--json", cwd=folder
    )
    document = json.loads(done.stdout)
    assert document["steps"] == 40
    origin = find_runs(folder / document["folder"])[0].origin()
    assert origin is not None
    assert (origin.recipe, origin.changes["attention.name"]) == ("tiles", "norm_softmax")
    assert sorted(path.parent.name for path in folder.rglob("metrics.jsonl")) == before


def test_report_reads_what_compare_wrote(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = study
    done = eureka("report", "runs/tiles", "-o", "page.html", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "page.html\n")
    assert "norm_softmax" in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, signum: signal.Signals) -> None:
    arguments = [
        "compare",
        "tiles",
        "--seeds",
        "1",
        *SMALL,
        "--set",
        "training.steps=400000",
        "--workers",
        "1",
        "--fix",
        "softmax",
    ]
    process = subprocess.Popen([sys.executable, "-m", "eureka", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size > 500 for path in tmp_path.rglob("metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert "0 of 1 runs are finished; the others have kept their checkpoints." in errors
    assert "Traceback" not in errors
    [checkpoint, *_] = sorted(tmp_path.rglob("step-*.pt"))
    reached = int(checkpoint.stem.removeprefix("step-"))
    assert 0 < reached < 400000


def test_in_a_terminal_the_display_is_live_and_standard_output_stays_clean(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    arguments = ["compare", "tiles", "--seeds", "1", *SMALL, "--fix", "softmax", "--json"]
    process = subprocess.Popen([sys.executable, "-m", "eureka", *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=child)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        shown += piece
    output, _ = process.communicate(timeout=60)
    os.close(parent)
    assert process.returncode == 0
    assert json.loads(output)["rows"][0]["fix"] == "softmax"
    assert b"runs ended" in shown


def test_the_table_for_people_names_fix_rate_ratio_step_and_accuracy(
    study: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = study
    done = eureka("compare", "tiles", "--seeds", "2", "--lr", "1e-3", *SMALL, cwd=folder)
    for word in ("fix", "learning rate", "Eureka-ratio", "median", "accuracy after", "norm_softmax", "0 of 2"):
        assert word in done.stdout


def test_starts_are_compared_as_fixes_are_and_several_studies_in_one_command(tmp_path: Path) -> None:
    done = eureka("compare", "tiles", "--fix", "softmax", "--start", "paper,clear", "--seeds", "1", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "softmax (start=clear) against softmax: not enough runs to tell" in done.stdout
    keys = [text.replace("=", ": ", 1) for text in SMALL if text != "--set"]
    text = f"recipe: tiles\nset: {{{', '.join(keys)}}}\nvariants: [{{model.start: paper}}, {{model.start: clear}}]\n"
    for name, lr in (("a", "3.0e-4"), ("b", "1.0e-3")):
        (tmp_path / f"{name}.yaml").write_text(f"{text}grid: {{training.seed: 1, training.lr: [{lr}]}}")
    (tmp_path / "both.yaml").write_text("studies: [a.yaml, b.yaml]")
    known = ["--known", "runs/tiles/runs.csv"]
    done = eureka("study", "both.yaml", *known, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 runs are taken from runs/tiles/runs.csv" in done.stderr  # those at the recipe's rate
    documents = json.loads(done.stdout)["studies"]
    assert [document["folder"] for document in documents] == ["runs/both/a", "runs/both/b"]
    found = {(row["lr"], row["settings"]["model.start"]) for document in documents for row in document["rows"]}
    assert found == {(lr, start) for lr in (3e-4, 1e-3) for start in ("paper", "clear")}


def test_where_no_run_stops_early_the_losses_after_equal_steps_are_compared(tmp_path: Path) -> None:
    done = eureka("compare", "tiles", "--seeds", "1", "--set", "training.early_stop=false", *SMALL, "--out", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [softmax, fix] = [
        run.result() for run in sorted(find_runs(tmp_path / "runs"), key=lambda run: not run.name.startswith("softmax"))
    ]
    assert softmax is not None
    assert fix is not None
    _, _, told = done.stdout.partition("Loss after 40 steps, each at its own best learning rate:\n")
    assert told.startswith("norm_softmax against softmax: not enough runs to tell (1 against 1); ")
    assert f"({fix.final_loss:.3f} against {softmax.final_loss:.3f})" in told
    assert "loss after" in done.stdout
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    [written] = json.loads((tmp_path / "runs" / "summary.json").read_text())["losses"]
    assert (written["loss"], written["baseline_loss"]) == (fix.final_loss, softmax.final_loss)


def test_only_the_runs_that_are_asked_for_count_against_the_limit(tmp_path: Path) -> None:
    """The command that would decide it has thirty seeds; it is told of, and not counted."""
    words = ["compare", "tiles", "--fix", "softmax,temperature", "--seeds", "1", *SMALL]
    done = eureka(*words, "--max-runs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "temperature against softmax: not enough runs to tell" in done.stdout
    refused = eureka(*words, "--max-runs", "1", "--until-sure", cwd=tmp_path)
    assert refused.returncode == 2
    assert "that is a study of 2 runs, more than 1" in refused.stderr


def test_arms_without_softmax_beside_them_are_told_why_there_is_no_verdict(tmp_path: Path) -> None:
    base = recipe("tiles").but({"training.seed": 0, "training.lr": 1e-3})
    fixes = {"attention.name": ["norm_softmax", "sigmoid", "softmax"]}
    for folder in Study.over(base, fixes, tmp_path / "runs", "tiles").prepare():
        folder.write_result(Outcome("finished", 1200, 1.0, 76_800, None, None, (), 0.5, 0.9))
    words = ["compare", "tiles", "--seeds", "1", "--lr", "1e-3", "--out", str(tmp_path / "runs"), "--fix"]
    why = "There is no verdict: verdicts compare with softmax, which is not among the arms; "
    for given, told in (("norm_softmax,sigmoid", True), ("norm_softmax", False), ("softmax,sigmoid", False)):
        shown = CliRunner().invoke(app, [*words, given], catch_exceptions=False).stdout
        assert (f"\n{why}add it with --fix softmax,norm_softmax,sigmoid.\n" in shown) is told
        assert (why in shown) is told
    file = tmp_path / "study.yaml"
    file.write_text("recipe: tiles\ngrid: {training.seed: 1, training.lr: [1.0e-3], attention.name: [norm_softmax, sigmoid]}")
    shown = CliRunner().invoke(app, ["study", str(file), "--out", str(tmp_path / "runs")], catch_exceptions=False).stdout
    assert f"{why}add `attention.name: softmax` to the variants or the grid of its file.\n" in shown


def test_before_a_run_has_ended_a_sentence_stands_for_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(summarise(Study.of(recipe("tiles"), [{}], tmp_path, "tiles").prepare()), plateaus=1)
    assert capsys.readouterr().out == "No run has ended yet.\n"


def test_only_the_conditions_without_softmax_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixes = ("norm_softmax", "sigmoid", "softmax")
    changes = [{"attention.name": fix, "model.dim": dim} for dim in (32, 64) for fix in fixes[: 2 + (dim == 64)]]
    summary = summarise(Study.of(recipe("tiles"), changes, tmp_path, "tiles").prepare())
    print_findings(summary, plateaus=1, add_softmax="add it")
    assert "There is no verdict for model.dim 32: verdicts compare with softmax" in capsys.readouterr().out
    print_findings(summary, plateaus=1)
    assert "There is no verdict" not in capsys.readouterr().out
