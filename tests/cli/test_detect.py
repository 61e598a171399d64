"""`eureka detect`: what it prints, for people and for programs, and what it says about bad files."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from eureka.cli.detect import detect
from eureka.errors import MissingExtraError, RequestError

VERDICT = re.compile(r"1 Eureka-moment, at step (5,9[89]\d|6,0[012]\d)\b")

app = typer.Typer()
app.command()(detect)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A plateau at 2, a drop at step 6,000, and a learning rate that does not explain it."""
    t = np.arange(1000)
    loss = 2.0 - 1.5 / (1.0 + np.exp(-(t - 600) / 8.0)) + 0.02 * np.random.default_rng(0).standard_normal(1000)
    file = tmp_path / "log.csv"
    file.write_text("step,train_loss,lr\n" + "".join(f"{10 * i},{value:.5f},0.001\n" for i, value in zip(t, loss, strict=True)))
    return file


def test_json_is_one_document_of_the_promised_form(log: Path) -> None:
    result = run(log, "--json")
    assert result.exit_code == 0
    [file] = json.loads(result.stdout)["files"]
    assert file["file"] == str(log)
    assert (file["metric"], file["points"]) == ("train_loss", 1000)
    [moment] = file["moments"]
    assert set(moment) == {"onset", "steepest", "end", "before", "after", "kind", "confidence"}
    assert moment["kind"] == "eureka"
    assert moment["steepest"] == pytest.approx(6000, abs=30)
    assert all(set(plateau) == {"start", "end", "level"} for plateau in file["plateaus"])
    assert file["plateaus"][0]["level"] == pytest.approx(2.0, abs=0.05)


def test_people_get_a_verdict_the_moments_and_a_picture(log: Path) -> None:
    text = run(log).stdout
    assert str(log) in text
    assert VERDICT.search(text)
    assert "train_loss by step, 1,000 points" in text
    assert "also there: lr" in text
    assert "confidence 0.9" in text
    assert "▼" in text
    assert "═" in text
    assert any("\u2800" < character <= "\u28ff" for character in text)


def test_the_verdict_ends_with_what_to_do_next(log: Path) -> None:
    lines = run(log, "--floor", "0.5").stdout.rstrip().splitlines()
    assert "  → it rests at 0.498, the best that the task allows (0.500): nothing is left to learn here" in lines
    [file] = json.loads(run(log, "--level", "digit=0.5", "--json").stdout)["files"]
    assert [one["reason"] for one in file["next"]] == ["level", "wait"]
    assert set(file["next"][0]) == {"reason", "seen", "next", "guess"}


@pytest.mark.parametrize("wrong", ["--level=0.5", "--level=x=", "--level=x=nan", "--level==1", "--floor=inf"])
def test_a_level_that_is_none_is_refused_in_one_sentence(log: Path, wrong: str) -> None:
    result = run(log, wrong)
    assert isinstance(result.exception, RequestError)
    assert str(result.exception).startswith(wrong.replace("=", " ", 1))


def test_bad_files_get_a_sentence_each_and_the_others_are_done(log: Path, tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.csv", tmp_path / "picture.png"
    empty.write_bytes(b"")
    binary.write_bytes(b"\x89PNG\x00\x01")
    result = run(empty, log, binary, tmp_path / "nothing.csv", "--json")
    assert result.exit_code == 2
    assert [file["file"] for file in json.loads(result.stdout)["files"]] == [str(log)]
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0] == f"eureka: {empty}: is empty."
    assert "is binary" in lines[1]
    assert "no such file" in lines[2]


def test_a_wrong_column_names_its_file_and_the_nearest(log: Path) -> None:
    result = run(log, "--column", "trainloss")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"eureka: {log}: unknown column 'trainloss'; did you mean 'train_loss'?")


def test_columns_can_be_set(log: Path) -> None:
    [file] = json.loads(run(log, "--column", "lr", "--step-column", "train_loss", "--json").stdout)["files"]
    assert (file["metric"], file["step"]) == ("lr", "train_loss")


def test_a_rate_file_explains_a_drop(log: Path, tmp_path: Path) -> None:
    rates = tmp_path / "lr.txt"
    rates.write_text("step,lr\n0,0.1\n5960,0.01\n")
    [file] = json.loads(run(log, "--lr-file", rates, "--json").stdout)["files"]
    assert [moment["kind"] for moment in file["moments"]] == ["lr_step"]


def test_least_confidence_is_obeyed(log: Path) -> None:
    [file] = json.loads(run(log, "--min-confidence", "1", "--json").stdout)["files"]
    assert file["moments"] == []


@pytest.mark.parametrize("name", ["plot.html", "plot.png"])
def test_a_plot_is_written_with_a_panel_for_each_file(log: Path, tmp_path: Path, name: str) -> None:
    plot = tmp_path / name
    if name.endswith("png"):
        pytest.importorskip("matplotlib")
    assert run(log, log, "--plot", plot).exit_code == 0
    if name.endswith("png"):
        from PIL import Image

        with Image.open(plot) as picture:
            assert picture.size == (960, 720)
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20) or []}
        assert (223, 231, 239) in colours  # the plateau's shade
    else:
        page = plot.read_text(encoding="utf-8")
        assert len(VERDICT.findall(page)) == 2
        assert 'src="http' not in page


@pytest.mark.parametrize(
    ("name", "message"), [("plot.pdf", "must end in .html or .png"), ("no/such/plot.html", "there is no folder")]
)
def test_a_plot_that_cannot_be_written_is_refused_before_the_work(log: Path, tmp_path: Path, name: str, message: str) -> None:
    result = run(log, "--plot", tmp_path / name)
    assert isinstance(result.exception, RequestError)
    assert message in str(result.exception)
    assert result.stdout == ""


def run_alone(code: str, *arguments: object) -> str:
    """What a fresh process prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_detect_imports_nothing_heavy(log: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from eureka.cli.detect import detect; detect([Path(sys.argv[1])], json=True);"
        "heavy = [name for name in ('torch', 'plotly', 'scipy', 'pandas', 'tensorboard', 'matplotlib') if name in sys.modules];"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    run_alone(code, log)


COUNT_OPENS = """
import sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
from eureka.cli.detect import detect
detect([Path(sys.argv[1])], json=True)
print("opened", sum(Path(path) == Path(sys.argv[2]) for path in opened))
"""


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "run/metrics.csv", "run/metrics.jsonl", "run/trainer_state.json"])
def test_a_log_with_its_learning_rate_is_opened_once(log: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    if name.endswith(("csv", "gz")):
        file.write_bytes(gzip.compress(log.read_bytes()) if name.endswith("gz") else log.read_bytes())
    else:
        records = [{"step": i, "loss": 2.0 + i % 3, "lr": 0.1} for i in range(100)]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        file.write_text(lines if name.endswith("jsonl") else json.dumps({"log_history": records}))
    given = file if file.parent == tmp_path else file.parent
    assert run_alone(COUNT_OPENS, given, file).splitlines()[-1] == "opened 1"


def test_a_png_without_matplotlib_names_the_command_that_installs_it(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run(log, "--plot", tmp_path / "plot.png")
    assert isinstance(result.exception, MissingExtraError)
    assert "pip install 'eureka-moments[plot]'" in str(result.exception)
    assert result.stdout == ""


def falls(at: int, high: float = 2.0) -> list[float]:
    t = np.arange(600)
    return [
        round(float(v), 4)
        for v in high - 1.5 / (1.0 + np.exp(-(t - at) / 5.0)) + 0.02 * np.random.default_rng(at).standard_normal(600)
    ]


def test_train_and_validation_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = "".join(f"{10 * i},{a},{b}\n" for i, (a, b) in enumerate(zip(falls(150), falls(450), strict=True)))
    file.write_text("step,train_loss,val_loss\n" + rows)
    assert re.search(r"train fell at 1,(49|50)\d, validation at 4,(49|50)\d: memorised first", run(file).stdout)
    [pair] = json.loads(run(file, "--json").stdout)["together"]
    assert (pair["train"], pair["validation"]) == ("train_loss", "val_loss")
    assert pair["sentence"].endswith("memorised first")


def test_more_is_better_by_name_or_when_told_so(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,quality\n" + "".join(f"{i},{3.0 - value:.4f}\n" for i, value in enumerate(falls(350))))
    [falling] = json.loads(run(file, "--json").stdout)["files"]
    [rising] = json.loads(run(file, "--json", "--rising").stdout)["files"]
    assert falling["moments"] == []
    assert [moment["kind"] for moment in rising["moments"]] == ["eureka"]
    assert rising["moments"][0]["after"] > rising["moments"][0]["before"]
    assert "not named like a loss" in run(file).stdout
    file.write_text(file.read_text().replace("quality", "accuracy"))
    assert "more is better" in run(file).stdout


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("epochs,epoch,loss", "300,{i},{loss}", "epochs is 300 in every row: not the step"),
        ("epoch,iter,loss", "{epoch},{batch},{loss}", "iter starts again 5 times: counted on by epoch, 100 each"),
        ("iter,loss", "{batch},{loss}", "iter starts again 5 times and the values go on: counted on"),
        ("seconds,loss", "{i},{loss}", "no column counts steps: the rows are numbered"),
    ],
)
def test_the_output_says_which_columns_were_taken_and_why(tmp_path: Path, header: str, row: str, said: str) -> None:
    file = tmp_path / "log.csv"
    rows = [row.format(i=i, epoch=i // 100, batch=i % 100, loss=value) for i, value in enumerate(falls(350))]
    file.write_text("\n".join([header, *rows]) + "\n")
    text = run(file).stdout
    assert said in text
    assert re.search(r"1 Eureka-moment, at .* 3(49|50)", text)


def test_every_run_of_a_folder_is_judged_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for name, content in {"a": falls(150), "b": falls(450), "c": None}.items():
        (tmp_path / name).mkdir()
        rows = "" if content is None else "".join(f"{i},{value}\n" for i, value in enumerate(content))
        (tmp_path / name / "metrics.csv").write_text("step,loss\n" + rows)
    result = run(tmp_path)
    assert result.exit_code == 0
    assert re.search(r"· a: 1 Eureka-moment, at step 1(49|50)", result.stdout)
    assert re.search(r"· b: 1 Eureka-moment, at step 4(49|50)", result.stdout)
    assert "a part was not read" in result.stdout
