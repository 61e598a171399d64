"""One known curve in the layouts that logs have: who writes it, and the step of its moment in the unit of that layout.

A layout writes a file or a folder below a given folder and returns its path. What it expects is either the steepest step of each
curve that has a moment, by metric (and run, where there are several), or the sentence that refuses it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

POINTS, EVERY, EPOCH = 600, 10, 60
"""Logged rows; steps between them; rows of an epoch."""
AT, LATER = 385, 480
"""The rows of the moment, and of the one on validation data."""
ROWS = range(POINTS)
STEPS = [EVERY * i for i in ROWS]


def falling(at: int = AT, seed: int = 0, high: float = 2.0, low: float = 0.5) -> list[float]:
    t = np.arange(POINTS)
    noise = 0.02 * np.random.default_rng(seed).standard_normal(POINTS)
    return [round(float(v), 4) for v in high - (high - low) / (1.0 + np.exp(-(t - at) / 5.0)) + noise]


LOSS, VALIDATION = falling(), falling(LATER, 1, 2.2, 0.8)
FLAT = [round(2.0 + 0.02 * float(v), 4) for v in np.random.default_rng(2).standard_normal(POINTS)]
ACCURACY = [round(1.05 - 0.4 * value, 4) for value in LOSS]
SPLITS = (("train", LOSS), ("val", VALIDATION))
STEP, STEP_LATER = float(EVERY * AT), float(EVERY * LATER)
IN_EPOCHS = AT / EPOCH

Expected = dict[str, float]


@dataclass(frozen=True)
class Layout:
    """How one program writes the curve."""

    name: str
    write: Callable[[Path], Path]
    expected: Expected
    """The step of the moment by metric, or by ``run: metric``; a curve that is not here has none."""
    unit: str | None = None
    """The name of the step."""
    refused: str | None = None
    """What the sentence says that refuses it."""
    together: str | None = None
    """What is said of train and validation."""


LAYOUTS: list[Layout] = []


def layout(
    name: str,
    expected: Expected | None = None,
    *,
    unit: str | None = None,
    refused: str | None = None,
    together: str | None = None,
) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    def keep(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
        LAYOUTS.append(Layout(name, write, expected or {}, unit, refused, together))
        return write

    return keep


def lines(name: str, expected: Expected, row: str, *, file: str = "train.log", head: str = "", **more: Any) -> None:
    """A layout with a text for each row, in which the names of `row_values` stand in braces."""

    def write(folder: Path) -> Path:
        return put(folder / file, head + "".join(row.format(**row_values(i)) for i in ROWS))

    layout(name, expected, **more)(write)


def row_values(i: int) -> dict[str, Any]:
    """What a row can write."""
    return {
        "i": i,
        "step": STEPS[i],
        "loss": LOSS[i],
        "val": VALIDATION[i],
        "acc": ACCURACY[i],
        "epoch": i // EPOCH,
        "epoch1": i // EPOCH + 1,  # counted from 1
        "share": i / EPOCH,
        "batch": i % EPOCH,
        "iter": EVERY * (i % EPOCH),
        "iter1": EVERY * (i % EPOCH + 1),
        "percent": 100 * (i % EPOCH) // EPOCH,
        "second": i % 60,
    }


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode())
    else:
        path.write_bytes(content)
    return path


def records(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    return put(path, "".join(json.dumps(row) + "\n" for row in rows))


def table(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]], delimiter: str = ",") -> Path:
    return put(path, "".join(delimiter.join(map(str, row)) + "\n" for row in [names, *rows]))


# Tables

SIMPLE = "{step},{loss}\n"
lines("CSV", {"loss": STEP}, SIMPLE, file="log.csv", head="step,loss\n", unit="step")
lines("TSV", {"loss": STEP}, "{step}\t{loss}\n", file="log.tsv", head="iter\tloss\n", unit="iter")
lines("CSV of Windows", {"loss": STEP}, "{step},{loss}\r\n", file="log.csv", head="step,loss\r\n", unit="step")
lines("CSV of an old Mac", {"loss": STEP}, "{step},{loss}\r", file="log.csv", head="step,loss\r", unit="step")
lines("CSV with a byte order mark", {"loss": STEP}, SIMPLE, file="log.csv", head="\ufeffstep,loss\n", unit="step")
lines("CSV with epochs beside epoch", {"loss": AT}, "300,{i},{loss}\n", file="l.csv", head="epochs,epoch,loss\n", unit="epoch")
lines("CSV with steps beside step", {"loss": STEP}, "6000,{step},{loss}\n", file="l.csv", head="steps,step,loss\n", unit="step")
lines("CSV with a preamble", {"loss": STEP}, SIMPLE, file="l.csv", head="# seed 1\nmy run\n\nstep,loss\n", unit="step")
lines("CSV with thousands", {"loss": STEP}, '"{step:,}",{loss}\n', file="l.csv", head="step,loss\n", unit="step")
lines("CSV with suffixes", {"loss": 1000 * STEP}, "{step}k,{loss}\n", file="l.csv", head="step,loss\n", unit="step")
lines("CSV with tokens", {"loss": 1000 * STEP}, "{step}000,{loss}\n", file="l.csv", head="tokens,loss\n", unit="tokens")
lines("CSV by pandas", {"loss": STEP}, "{i},{step},{loss}\n", file="l.csv", head=",global_step,loss\n", unit="global_step")
lines("one column", {"column 1": AT}, "{loss}\n", file="loss.txt", unit="row number")
lines("two columns without names", {"column 2": STEP}, "{step} {loss}\n", file="loss.txt", unit="column 1")
lines("losses without names or steps", {"column 1": AT, "column 2": LATER}, "{loss} {val}\n", file="loss.txt", unit="row number")
lines(
    "rows with a split between step and loss",
    {"train": STEP, "val": STEP_LATER},
    "{step} train {loss:.6f}\n{step} val {val:.4f}\n{step} hella 0.2{second:02d}\n",
    unit="column 1",
    together="memorised first",
)
lines(
    "rows with a metric before step and value",
    {"train_loss": STEP, "val_loss": STEP_LATER},
    "train_loss {step} {loss}\nval_loss {step} {val}\n",
    together="memorised first",
)


lines(
    "names of several words between tabs",
    {"Training Loss": STEP, "Validation Loss": STEP_LATER},
    "{step}\t{loss:.6f}\t{val:.6f}\n",
    head="Step\tTraining Loss\tValidation Loss\n",
    file="log.txt",
    unit="Step",
    together="memorised first",
)
lines(
    "names in a comment",
    {"loss": STEP, "acc": STEP},
    "{step} {loss} {acc}\n",
    head="# step loss acc\n",
    file="l.txt",
    unit="step",
)
lines(
    "names with units",
    {"Loss (nats)": STEP},
    "{step},{loss}\n",
    head="Step (updates),Loss (nats)\n",
    file="l.csv",
    unit="Step (updates)",
)
lines("exponents with D", {"loss": STEP}, "{step} {loss:.4f}D+00\n", head="step loss\n", file="fort.txt", unit="step")
lines(
    "skorch's table in colours",
    {"train_loss": AT, "valid_loss": LATER, "valid_acc": AT},
    "{i:7d}  \x1b[36m{loss:.4f}\x1b[0m  \x1b[32m{acc:.4f}\x1b[0m  {val:.4f}  0.0{second:02d}\n",
    head="  epoch    train_loss    valid_acc    valid_loss     dur\n-------  ------------  -----------  ------------  ------\n",
    unit="epoch",
)
lines(
    "spaCy's table",
    {"LOSS NER": STEP, "SCORE": STEP},
    "{epoch:3d} {step:7d} {loss:9.2f} {acc:7.2f}\n",
    head="E    #       LOSS NER  SCORE \n---  ------  --------  ------\n",
    unit="#",
)
lines(
    "a drawn table",
    {"train loss": AT, "val loss": LATER},
    "│ {i:5d} │ {loss:10.4f} │ {val:8.4f} │\n",
    head="┏━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓\n┃ epoch ┃ train loss ┃ val loss ┃\n┡━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩\n",
    unit="epoch",
)
lines("an accuracy by the name of its file", {"column 1": AT}, "{acc}\n", file="val_accuracy.txt", unit="row number")


@layout("CSV with decimal commas", {"Loss": STEP}, unit="Step")
def decimal_commas(folder: Path) -> Path:
    rows = "".join(f"{s};{v:.4f}\n" for s, v in zip(STEPS, LOSS, strict=True))
    return put(folder / "l.csv", "Step;Loss\n" + rows.replace(".", ","))


@layout("CSV with gaps", {"loss": STEP}, unit="step")
def gaps(folder: Path) -> Path:
    rows = [(s, ("n/a", "NaN", "inf", "")[i % 4] if i % 50 in (7, 8) else LOSS[i]) for i, s in enumerate(STEPS)]
    return table(folder / "l.csv", ["step", "loss"], rows)


@layout("CSV, newest row first", {"loss": STEP}, unit="step")
def newest_first(folder: Path) -> Path:
    return table(folder / "l.csv", ["step", "loss"], list(zip(STEPS, LOSS, strict=True))[::-1])


@layout("a run that was resumed", {"loss": STEP}, unit="step")
def resumed(folder: Path) -> Path:
    rows = [(STEPS[i], LOSS[i]) for i in (*range(300), *range(260, POINTS))]
    return table(folder / "l.csv", ["step", "loss"], rows)


@layout("CSV in UTF-16, by PowerShell", {"loss": STEP}, unit="step")
def utf16(folder: Path) -> Path:
    return put(
        folder / "log.csv", ("step,loss\r\n" + "".join(f"{s},{v}\r\n" for s, v in zip(STEPS, LOSS, strict=True))).encode("utf-16")
    )


@layout("CSV, gzipped", {"loss": STEP}, unit="step")
def gzipped(folder: Path) -> Path:
    return put(
        folder / "log.csv.gz",
        gzip.compress(table(folder / "x", ["step", "loss"], list(zip(STEPS, LOSS, strict=True))).read_bytes()),
    )


@layout("CSV, packed with bzip2", {"loss": STEP}, unit="step")
def bzipped(folder: Path) -> Path:
    return put(
        folder / "log.csv.bz2", bz2.compress(b"step,loss\n" + "".join(SIMPLE.format(**row_values(i)) for i in ROWS).encode())
    )


@layout("CSV, packed with xz", {"loss": STEP}, unit="step")
def xz(folder: Path) -> Path:
    return put(
        folder / "log.csv.xz", lzma.compress(b"step,loss\n" + "".join(SIMPLE.format(**row_values(i)) for i in ROWS).encode())
    )


@layout("CSV, alone in a ZIP archive", {"loss": STEP}, unit="step")
def zipped(folder: Path) -> Path:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.csv", "step,loss\n" + "".join(SIMPLE.format(**row_values(i)) for i in ROWS))
    return put(folder / "log.zip", packed.getvalue())


@layout("CSV, gzipped without saying so", {"loss": STEP}, unit="step")
def secretly_gzipped(folder: Path) -> Path:
    return gzipped(folder).rename(folder / "log.csv")


@layout("appended runs", {"run 1: loss": STEP, "run 2: loss": STEP_LATER}, unit="step")
def appended(folder: Path) -> Path:
    second = falling(LATER, 5)
    return table(folder / "l.csv", ["step", "loss"], [*zip(STEPS, LOSS, strict=True), *zip(STEPS, second, strict=True)])


@layout("appended runs with their header again", {"run 1: loss": STEP, "run 2: loss": STEP_LATER}, unit="step")
def appended_headers(folder: Path) -> Path:
    second = falling(LATER, 5)
    return table(
        folder / "l.csv", ["step", "loss"], [*zip(STEPS, LOSS, strict=True), ("step", "loss"), *zip(STEPS, second, strict=True)]
    )


@layout("a batch that restarts without epochs", {"loss": AT + 1}, unit="batch")
def restarting(folder: Path) -> Path:
    return table(folder / "l.csv", ["batch", "loss"], [(i % EPOCH + 1, LOSS[i]) for i in ROWS])


@layout("a batch that restarts with each epoch", {"loss": AT}, unit="batch_idx")
def restarting_epochs(folder: Path) -> Path:
    return table(folder / "l.csv", ["epoch", "batch_idx", "loss"], [(i // EPOCH, i % EPOCH, LOSS[i]) for i in ROWS])


@layout("many rows an epoch, and no other counter", {"loss": IN_EPOCHS}, unit="epoch")
def rows_of_epochs(folder: Path) -> Path:
    return table(folder / "l.csv", ["epoch", "loss"], [(i // EPOCH, LOSS[i]) for i in ROWS])


@layout("a seed for each run", {"seed 0: loss": STEP, "seed 1: loss": STEP_LATER}, unit="step")
def seeds(folder: Path) -> Path:
    both = [(s, seed, (LOSS, VALIDATION)[seed][i]) for i, s in enumerate(STEPS) for seed in (0, 1)]
    return table(folder / "l.csv", ["step", "seed", "loss"], both)


@layout("train and test in one table", {"train_loss": STEP, "test_loss": STEP_LATER}, unit="epoch", together="memorised first")
def grokking(folder: Path) -> Path:
    return table(folder / "l.csv", ["epoch", "train_loss", "test_loss"], list(zip(STEPS, LOSS, VALIDATION, strict=True)))


@layout("accuracy alone", {"val_accuracy": STEP}, unit="step")
def accuracy(folder: Path) -> Path:
    return table(folder / "l.csv", ["step", "val_accuracy"], list(zip(STEPS, ACCURACY, strict=True)))


@layout("a metric in each row", {"train/loss": STEP, "eval/accuracy": STEP}, unit="step")
def long_format(folder: Path) -> Path:
    rows = [
        row
        for s, a, b in zip(STEPS, LOSS, ACCURACY, strict=True)
        for row in ((s, "train/loss", a), (s, "eval/accuracy", b), (s, "lr", 0.1))
    ]
    return table(folder / "metrics.csv", ["step", "metric", "value"], rows)


@layout("TensorBoard's CSV of an accuracy", {"Value": STEP}, unit="Step")
def tensorboard_csv(folder: Path) -> Path:
    rows = [(1.7e9 + i, s, v) for i, (s, v) in enumerate(zip(STEPS, ACCURACY, strict=True))]
    return table(folder / "run-.-tag-eval_accuracy.csv", ["Wall time", "Step", "Value"], rows)


@layout(
    "W&B export of several runs", {"happy-1: happy-1 - train/loss": STEP, "sad-2: sad-2 - train/loss": STEP_LATER}, unit="Step"
)
def wandb_export(folder: Path) -> Path:
    names = [f"{run} - train/loss{end}" for run in ("happy-1", "sad-2") for end in ("", "__MIN", "__MAX")]
    rows = [(s, a, a, a, b, b, b) for s, a, b in zip(STEPS, LOSS, VALIDATION, strict=True)]
    return put(folder / "wandb.csv", "".join(",".join(f'"{one}"' for one in row) + "\n" for row in [("Step", *names), *rows]))


@layout("W&B history with its own columns", {"train/loss": STEP}, unit="train/global_step")
def wandb_history(folder: Path) -> Path:
    rows = [(i, 1.7e9 + i, 3.0 * i, s, v) for i, (s, v) in enumerate(zip(STEPS, LOSS, strict=True))]
    return table(folder / "h.csv", ["_step", "_timestamp", "_runtime", "train/global_step", "train/loss"], rows)


@layout("Lightning's metrics.csv", {"train_loss": STEP, "val_loss": STEP_LATER}, unit="step", together="memorised first")
def lightning(folder: Path) -> Path:
    rows = [row for i, s in enumerate(STEPS) for row in ((i // EPOCH, s, LOSS[i], ""), (i // EPOCH, s, "", VALIDATION[i]))]
    return table(folder / "metrics.csv", ["epoch", "step", "train_loss", "val_loss"], rows).parent


@layout("Lightning's logs of two versions", {"version_0: train_loss": STEP, "version_1: train_loss": STEP_LATER}, unit="step")
def lightning_versions(folder: Path) -> Path:
    for i, values in enumerate((LOSS, VALIDATION)):
        table(folder / f"lightning_logs/version_{i}/metrics.csv", ["step", "train_loss"], list(zip(STEPS, values, strict=True)))
    return folder / "lightning_logs"


@layout("ultralytics' results.csv", {"train/box_loss": AT, "metrics/mAP50(B)": AT}, unit="epoch")
def ultralytics(folder: Path) -> Path:
    names = [f"{name:>23}" for name in ("epoch", "train/box_loss", "metrics/mAP50(B)", "lr/pg0")]
    rows = [[f"{one:>23}" for one in (i, LOSS[i], ACCURACY[i], 0.01)] for i in ROWS]
    return table(folder / "results.csv", names, rows)


# JSON

JSON_ROW = '{{"step": {step}, "loss": {loss}, "lr": 0.1}}\n'
lines("JSON Lines", {"loss": STEP}, JSON_ROW, file="log.jsonl", unit="step")
lines("JSON Lines with a byte order mark", {"loss": STEP}, JSON_ROW, file="log.jsonl", head="\ufeff", unit="step")
lines("JSON Lines, nested", {"train.loss": STEP}, '{{"step": {step}, "train": {{"loss": {loss}}}}}\n', file="l.json", unit="step")


@layout("mmdetection's JSON, where iter restarts", {"train loss": STEP + EVERY}, unit="iter")
def mmdetection(folder: Path) -> Path:
    rows: list[dict[str, Any]] = [{"env_info": "sys.platform: linux", "seed": 0}]
    for i in ROWS:
        rows.append(
            {"mode": "train", "epoch": i // EPOCH + 1, "iter": EVERY * (i % EPOCH + 1), "lr": 0.02, "time": 0.3, "loss": LOSS[i]}
        )
        if i % EPOCH == EPOCH - 1:
            rows.append({"mode": "val", "epoch": i // EPOCH + 1, "iter": 5000, "lr": 0.02, "bbox_mAP": 0.3})
    return records(folder / "20210513.log.json", rows)


@layout(
    "train, validation and benchmark rows", {"train loss": STEP, "val loss": STEP_LATER}, unit="step", together="memorised first"
)
def mixed(folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for i, s in enumerate(STEPS):
        rows += [{"step": s, "split": "train", "loss": LOSS[i]}, {"step": s, "split": "val", "loss": VALIDATION[i]}]
        rows += [{"step": s, "split": "hellaswag", "acc_norm": 0.25}]
    return records(folder / "log.jsonl", rows)


@layout("Hugging Face's trainer_state.json", {"loss": STEP}, unit="step")
def trainer_state(folder: Path) -> Path:
    history: list[dict[str, Any]] = [
        {"epoch": i / EPOCH, "step": s, "loss": LOSS[i], "learning_rate": 1e-4, "grad_norm": 1.0} for i, s in enumerate(STEPS)
    ]
    history.append({"epoch": 20.0, "step": 6000, "train_loss": 1.2, "train_runtime": 33.0, "total_flos": 1e15})
    return put(folder / "trainer_state.json", json.dumps({"best_metric": None, "global_step": 6000, "log_history": history}))


@layout("Hugging Face's state, evaluations only", {"eval_loss": STEP}, unit="step")
def eval_only(folder: Path) -> Path:
    history: list[dict[str, Any]] = [
        {"epoch": i / EPOCH, "step": s, "eval_loss": LOSS[i], "eval_runtime": 3.0} for i, s in enumerate(STEPS)
    ]
    history.append({"epoch": 20.0, "step": 6000, "train_loss": 1.2, "train_runtime": 33.0})
    return put(folder / "trainer_state.json", json.dumps({"log_history": history}))


@layout("Hugging Face's output folder with checkpoints", {"loss": STEP}, unit="step")
def checkpoints(folder: Path) -> Path:
    for last in (1000, 900, 6000):
        history = [{"step": s, "loss": v} for s, v in zip(STEPS, LOSS, strict=True) if s < last]
        put(folder / f"out/checkpoint-{last}/trainer_state.json", json.dumps({"log_history": history}))
    return put(folder / "out/config.json", "{}").parent


@layout("Keras' history as JSON", {"loss": AT, "val_loss": LATER}, unit="row number", together="memorised first")
def keras_history(folder: Path) -> Path:
    return put(folder / "history.json", json.dumps({"loss": LOSS, "val_loss": VALIDATION}))


@layout("Comet's metrics as JSON", {"train_loss": STEP}, unit="step")
def comet(folder: Path) -> Path:
    rows = [
        {"metricName": "train_loss", "metricValue": str(v), "step": s, "timestamp": 1.7e12 + s}
        for s, v in zip(STEPS, LOSS, strict=True)
    ]
    return put(folder / "metrics.json", json.dumps(rows))


@layout("JSON, runs by name", {"a: loss": STEP, "b: loss": STEP_LATER}, unit="step")
def json_runs(folder: Path) -> Path:
    return put(folder / "l.json", json.dumps({"a": {"step": STEPS, "loss": LOSS}, "b": {"step": STEPS, "loss": VALIDATION}}))


@layout("JSON, losses by step", {"value": STEP}, unit="step")
def json_by_step(folder: Path) -> Path:
    return put(folder / "loss.json", json.dumps({str(s): v for s, v in zip(STEPS, LOSS, strict=True)}))


@layout("a log with a line cut short inside", {"loss": STEP}, unit="step")
def cut_inside(folder: Path) -> Path:
    rows = [json.dumps({"step": s, "loss": v}) for s, v in zip(STEPS, LOSS, strict=True)]
    return put(folder / "log.jsonl", "\n".join([*rows[:200], rows[200][:9], *rows[200:]]) + "\n")


@layout("TensorBoard's JSON", {"value": STEP}, unit="step")
def tensorboard_json(folder: Path) -> Path:
    return put(folder / "loss.json", json.dumps([[1.7e9 + i, s, v] for i, (s, v) in enumerate(zip(STEPS, LOSS, strict=True))]))


lines(
    "JSON Lines with lists beside, as of DETR",
    {"train_loss": AT, "test_loss": LATER},
    '{{"train_loss": {loss}, "test_loss": {val}, "test_coco_eval_bbox": [0.1, 0.2], "epoch": {i}}}\n',
    file="log.txt",
    unit="epoch",
    together="memorised first",
)
lines("JSON Lines of lists of one", {"loss": STEP}, '{{"step": [{step}], "loss": [{loss}]}}\n', file="l.jsonl", unit="step")
lines(
    "JSON Lines, the counter in a group",
    {"metrics.loss": STEP},
    '{{"progress": {{"step": {step}}}, "metrics": {{"loss": {loss}}}}}\n',
    file="l.jsonl",
    unit="progress.step",
)
lines(
    "JSON objects over several lines", {"loss": STEP}, '{{\n  "step": {step},\n  "loss": {loss}\n}}\n', file="l.json", unit="step"
)


@layout("Sacred's metrics.json", {"train.loss": STEP, "val.acc": STEP}, unit="step")
def sacred(folder: Path) -> Path:
    content = {name: {"steps": STEPS, "values": values} for name, values in (("train.loss", LOSS), ("val.acc", ACCURACY))}
    return put(folder / "metrics.json", json.dumps(content))


@layout("records by their number", {"train_loss": AT}, unit="epoch")
def numbered_records(folder: Path) -> Path:
    return put(folder / "log.json", json.dumps({f"epoch_{i}": {"train_loss": value} for i, value in enumerate(LOSS)}))


@layout("W&B's history with histograms and texts for gaps", {"loss": STEP}, unit="_step")
def histograms(folder: Path) -> Path:
    gradients = {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    rows = [{"_step": s, "loss": "NaN" if s % 500 == 0 else v, "grad": gradients} for s, v in zip(STEPS, LOSS, strict=True)]
    return put(folder / "history.json", json.dumps(rows))


@layout("MMEngine's scalars, where evaluations count epochs", {"loss": STEP, "mAP": STEP}, unit="step")
def scalars(folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for i in ROWS:
        rows.append({"loss": LOSS[i], "step": STEPS[i]})
        rows += [{"mAP": ACCURACY[i], "step": i // 5}] if i % 5 == 4 else []
    return records(folder / "vis_data/scalars.json", rows).parents[1]


@layout("AllenNLP's folder", {"training_loss": AT / 4, "validation_loss": LATER / 4}, unit="epoch", together="memorised first")
def allennlp(folder: Path) -> Path:
    for i in range(0, POINTS, 4):
        record = {"epoch": i // 4, "training_loss": LOSS[i], "validation_loss": VALIDATION[i], "best_validation_loss": 0.1}
        put(folder / f"out/metrics_epoch_{i // 4}.json", json.dumps(record))
    return put(folder / "out/metrics.json", '{"best_epoch": 3}').parent


# Text

lines(
    "nanoGPT",
    {"loss": STEP, "train loss": STEP, "val loss": STEP_LATER},
    "step {step}: train loss {loss:.4f}, val loss {val:.4f}\niter {step}: loss {loss:.4f}, time 1200.{second}ms, mfu 3.21%\n",
    head="tokens per iteration will be: 491,520\nnumber of parameters: 10.65M\ncompiling the model... (takes a ~minute)\n",
    together="memorised first",
)


@layout("nanoGPT, evaluated seldom", {"loss": STEP}, unit="iter")
def nanogpt_evaluated_seldom(folder: Path) -> Path:
    text = ""
    for i in ROWS:
        if i % 100 == 0:
            text += f"step {STEPS[i]}: train loss {LOSS[i]:.4f}, val loss {VALIDATION[i]:.4f}\n"
        text += f"iter {STEPS[i]}: loss {LOSS[i]:.4f}, time 1200.10ms, mfu 3.21%\n"
    return put(folder / "train.log", text)


lines(
    "Megatron-LM",
    {"lm loss": STEP, "validation lm loss value": STEP_LATER},
    " [2024-05-27 15:23:07] iteration {step:8d}/    6000 | consumed samples: {step:11d}0 | elapsed time per iteration (ms):"
    " 1234.{second} | learning rate: 1.500E-04 | global batch size:   256 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm:"
    " 1.{second} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    " validation loss at iteration {step} | lm loss value: {val:.6E} | \n",
    unit="iteration",
    together="memorised first",
)
lines(
    "Hugging Face's printed dicts",
    {"loss": IN_EPOCHS},
    "{{'loss': {loss}, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': {share:.3f}}}\n",
    head="***** Running training *****\n  Num examples = 5,000\n  Num Epochs = 10\n",
    unit="epoch",
)
lines(
    "Hugging Face's printed dicts of texts",
    {"loss": IN_EPOCHS, "eval_loss": LATER / EPOCH},
    "{{'loss': '{loss}', 'learning_rate': '5e-05', 'epoch': '{share:.3f}'}}\n"
    "{{'eval_loss': '{val}', 'eval_runtime': '3.1', 'eval_steps_per_second': '9.1', 'epoch': '{share:.3f}'}}\n",
    unit="epoch",
    together="memorised first",
)
lines(
    "fairseq's JSON in text",
    {"loss": STEP, "valid_loss": STEP_LATER},
    '2024-03-08 12:31:36 | INFO | train_inner | {{"epoch": {epoch1}, "update": {share:.3f}, "loss": "{loss}", "wps": "12",'
    ' "num_updates": "{step}", "lr": "2e-05", "gnorm": "2.7", "loss_scale": "4", "train_wall": "99", "wall": "105"}}\n'
    '2024-03-08 12:31:36 | INFO | valid | {{"epoch": {epoch1}, "valid_loss": "{val}", "valid_num_updates": "{step}",'
    ' "valid_best_loss": "0.1"}}\n',
    head="2024-03-08 12:29:51 | INFO | fairseq.trainer | NOTE: gradient overflow detected, setting loss scale to: 64.0\n",
)
lines(
    "fairseq's simple progress",
    {"loss": STEP},
    "| epoch {epoch1:03d}: {iter:6d} / 600 loss={loss:.3f}, wps=12041, num_updates={step}, lr=0.0001, gnorm=1.2\n",
    unit="num_updates",
)
lines(
    "Keras' progress, with backspaces and returns",
    {"loss": 100.0 * AT, "val_loss": LATER},
    "Epoch {i}/600\n\r1/100 [>....] - ETA: 1s - loss: {loss:.4f}\r50/100 [==>..] - ETA: 1s - loss: {loss:.4f}\b\b\b\b"
    "\r100/100 [=====] - 3s 2ms/step - loss: {loss:.4f} - val_loss: {val:.4f}\n",
    together="counted differently",
)
lines(
    "Keras, a line an epoch",
    {"loss": AT, "val_loss": LATER, "accuracy": AT},
    "Epoch {i}/600\n100/100 - 3s - 2ms/step - accuracy: {acc:.4f} - loss: {loss:.4f} - val_loss: {val:.4f}\n"
    "Epoch {i:05d}: val_loss improved from 0.{second:02d} to 0.0{second:02d}, saving model to dev-box/test.h5\n",
    unit="Epoch",
    together="memorised first",
)
lines("tqdm", {"loss": STEP}, "\r 10%|███    | {step}/6000 [00:{second:02d}<01:30, 9.90it/s, loss={loss:.3f}]", unit="batch")
lines(
    "Lightning's bar",
    {"train_loss": AT},
    "\rEpoch {epoch}: {percent:3d}%|███  | {batch}/60 [00:01<00:10,  9.90it/s, v_num=3, train_loss={loss:.3f}]",
    unit="batch",
)
lines(
    "logging with key=value",
    {"loss": STEP},
    "[2024-01-01 12:00:{second:02d},123][INFO] step={step} loss={loss:.4f} lr=1e-3\n",
    unit="step",
)
lines(
    "Step 5 -- Train loss",
    {"Train loss": STEP, "Val loss": STEP_LATER},
    "Step {step} -- Train loss: {loss:.4f}, Val loss: {val:.4f}\n",
    unit="Step",
    together="memorised first",
)
lines(
    "speed run with its code in front",
    {"val_loss": STEP},
    "step:{step}/6000 val_loss:{loss:.4f} train_time:{step}ms step_avg:159.{second}ms\n",
    head="import os\n"
    + "    x = torch.zeros(3, 4)  # loss = 3\n    val_loss_every : int = 125\n    lr = 0.1\n" * 2000
    + "=" * 100
    + "\nRunning Python 3.12\n| N/A   33C    P0    74W / 700W |\n"
    + "=" * 100
    + "\n",
    unit="step",
)
lines(
    "timm",
    {"Loss": AT},
    "Train: {epoch} [{batch:4d}/60 ({percent:3d}%)]  Loss: {loss:.4f} ({loss:.3f})  Time: 0.4s, 301.2/s  (0.4s, 301.2/s)"
    "  LR: 1.000e-03  Data: 0.01 (0.02)\n",
    unit="batch",
)
lines(
    "mmdetection's text",
    {"loss": STEP + EVERY, "loss_cls": STEP + EVERY},
    "2021-05-13 16:48:24,893 - mmdet - INFO - Epoch [{epoch1}][{iter1}/600]\tlr: 1.978e-03, eta: 6:41:04, time: 0.707,"
    " data_time: 0.052, memory: 3821, loss_cls: {loss:.4f}, loss: {loss:.4f}\n",
    unit="batch",
)
lines(
    "MMEngine's text",
    {"loss": STEP + EVERY},
    "2023/05/13 16:48:24 - mmengine - INFO - Epoch(train)  [{epoch1}][{iter1:4d}/600]  lr: 1.97e-03  eta: 6:41:04  time: 0.7"
    "  memory: 3821  loss: {loss:.4f}\n",
    unit="batch",
)
lines(
    "PyTorch's ImageNet example",
    {"Loss": AT},
    "Epoch: [{epoch}][{batch:5d}/60]\tTime  0.512 ( 1.012)\tData  0.001 ( 0.321)\tLoss {loss:.4e} (6.9500e+00)"
    "\tAcc@1   0.00 (  0.10)\n",
    unit="batch",
)
lines(
    "PyTorch's MNIST example", {"Loss": STEP}, "Train Epoch: {epoch1} [{iter}/600 ({percent}%)]\tLoss: {loss:.6f}\n", unit="batch"
)
lines("PyTorch's tutorial", {"loss": STEP + EVERY}, "[{epoch1}, {iter1:5d}] loss: {loss:.3f}\n", unit="batch")
lines(
    "DeepSpeed",
    {"loss": STEP},
    "[2023-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]\n"
    "steps: {step} loss: {loss:.4f} iter time (s): 0.512 samples/sec: 62.5\n",
    unit="steps",
)
lines(
    "llm.c", {"trl": STEP, "tel": STEP_LATER}, "s:{step} trl:{loss:.6f}\ns:{step} tel:{val:.6f}\n", unit="s", together="memorised"
)
lines("a sentence a value", {"Validation loss": STEP}, "INFO Validation loss at iteration {step}: {loss}\n", unit="iteration")
lines("lines of their own", {"loss": STEP}, "--- step {step} ---\n  loss: {loss}\n  took 3.1s\n", unit="step")
lines("colours and thousands", {"loss": STEP}, "\x1b[1mstep {step:,}\x1b[0m | loss \x1b[31m{loss:.4f}\x1b[0m\n", unit="step")
lines("steps with k", {"loss": 1000 * STEP}, "step {step}k loss {loss}\n", unit="step")
lines("tensors", {"loss": STEP}, "step {step}: loss=tensor({loss}, device='cuda:0', grad_fn=<NllLossBackward0>)\n", unit="step")


lines("a number before each line", {"loss": STEP}, "[{step}] loss: {loss}\n", unit="index")
lines("tqdm without a total", {"loss": STEP}, "train: {step}it [1:00:00,  1.2it/s, loss={loss}]\n", unit="it")
lines(
    "train and val alone",
    {"train": AT, "val": LATER},
    "Epoch {i} - train: {loss}, val: {val}\n",
    unit="Epoch",
    together="memorised",
)
lines("XGBoost", {"train-logloss": AT, "eval-logloss": LATER}, "[{i}]\ttrain-logloss:{loss}\teval-logloss:{val}\n", unit="index")
lines("Abseil", {"loss": STEP}, "I0101 12:00:00.123456 140 train.py:33] step = {step}, loss = {loss} (0.123 sec)\n", unit="step")
lines("TensorFlow's estimator", {"loss": STEP}, "INFO:tensorflow:loss = {loss}, step = {step} (3.456 sec)\n", unit="step")
lines("Gluon", {"loss": AT}, "Epoch[{epoch}] Batch [{batch}]\tSpeed: 123.4 samples/sec\tloss={loss}\n", unit="Batch")
lines("ranks", {"loss": STEP}, "[rank 0] step {step} loss {loss}\n[rank 1] step {step} loss {loss}\n", unit="step")
lines(
    "detectron2",
    {"total_loss": STEP},
    "[01/01 12:00:00 d2.utils.events]: eta: 1:00:00  iter: {step}  total_loss: {loss}  time: 0.3  lr: 0.02  max_mem: 3000M\n",
    unit="iter",
)
lines(
    "PaddlePaddle",
    {"loss": AT, "top1": AT},
    "[2024/01/01 12:00:00] ppcls INFO: [Train][Epoch {epoch1}/10][Iter: {batch}/60]lr(LinearWarmup): 0.00100000, top1: {acc},"
    " loss: {loss}, batch_cost: 0.3s, reader_cost: 0.1, ips: 32 samples/s, eta: 1:00:00\n",
    unit="Iter",
)
lines(
    "OpenNMT",
    {"xent": STEP},
    "[2021-01-01 12:00:00,123 INFO] Step {step}/ 6000; xent: {loss}; lr: 1.00000; 3000/3000 tok/s;    100 sec\n",
    unit="Step",
)
lines(
    "Marian",
    {"Cost": STEP},
    "[2021-01-01 12:00:00] Ep. {epoch1} : Up. {step} : Sen. 123,456 : Cost {loss:.8f} * 123,456 after 1,234 : Time 12.3s\n",
    unit="Up.",
)
lines(
    "a model card",
    {"Training Loss": STEP, "Validation Loss": STEP_LATER},
    "| {loss} | {share:.2f} | {step} | {val} |\n",
    head="# Model\n\nIts loss is 0.5.\n\n| Training Loss | Epoch | Step | Validation Loss |\n|:---:|:---:|:---:|:---:|\n",
    file="README.md",
    unit="Step",
    together="memorised first",
)


lines(
    "NeMo",
    {"reduced_train_loss": STEP},
    "Training epoch 0, iteration {step}/5999 | lr: 0.0006 | consumed_samples: {step}0 | global_step: {step} |"
    " reduced_train_loss: {loss} | train_step_timing in s: 0.03{second}\n",
    unit="global_step",
)
lines(
    "ESPnet's batches",
    {"loss": STEP + EVERY, "acc": STEP + EVERY},
    "[gpu01:0/2] 2020-07-19 08:49:04,080 (trainer:464) INFO: {epoch1}epoch:train:{iter}-{iter1}batch: iter_time=2.878e-04,"
    " forward_time=0.134, loss={loss}, acc={acc}, lr_0=3.460e-06, train_time=1.816\n",
    unit="batch",
)
lines(
    "ESPnet's epochs, train and validation in one line",
    {"train loss": AT, "valid loss": LATER},
    "(trainer:243) INFO: {i}epoch results: [train] iter_time=0.001, loss={loss}, time=1 minute and 42.6 seconds, total_count=75,"
    " [valid] loss={val}, time=3 seconds, total_count=240\n",
    unit="epoch",
    together="memorised first",
)
lines(
    "TensorFlow's tutorial",
    {"Loss": AT, "Accuracy": AT, "Test Loss": LATER},
    "Epoch {i}, Loss: {loss}, Accuracy: {acc}, Test Loss: {val}\n",
    unit="Epoch",
    together="memorised first",
)
lines(
    "LightGBM",
    {"training's l2": AT, "valid_1's l2": LATER},
    "[{i}]\ttraining's l2: {loss:.6f}\tvalid_1's l2: {val:.6f}\n",
    unit="index",
    together="memorised first",
)
lines(
    "CatBoost", {"learn": AT, "test": LATER}, "{i}:\tlearn: {loss}\ttest: {val}\tbest: {val} ({i})\ttotal: 60.1ms\n", unit="index"
)
lines("darknet", {"avg loss": AT}, " {i}: {val}, {loss} avg loss, 0.001 rate, 3.{second:02d} seconds, 64 images\n", unit="index")
lines(
    "Stable-Baselines' table",
    {"ep_rew_mean": STEP, "value_loss": STEP},
    "----------------------------------\n| rollout/           |           |\n|    ep_rew_mean     | {acc:<9} |\n"
    "| time/              |           |\n|    fps             | 1{second:<8} |\n|    total_timesteps | {step:<9} |\n"
    "| train/             |           |\n|    value_loss      | {loss:<9} |\n----------------------------------\n",
    unit="total_timesteps",
)
lines(
    "clu, as of Flax",
    {"train_loss": STEP},
    "I0101 12:00:00.123456 139 logging_writer.py:48] [{step}] learning_rate=0.1, train_loss={loss}, steps_per_sec=2.{second}\n",
    unit="index",
)
lines(
    "DCGAN",
    {"Loss_D": AT, "Loss_G": LATER},
    "[{epoch}/10][{batch}/60]\tLoss_D: {loss}\tLoss_G: {val}\tD(x): 0.5{second:02d}\tD(G(z)): 0.45 / 0.3{second:02d}\n",
    unit="batch",
)
lines("Tacotron", {"Train loss": STEP}, "Train loss {step} {loss:.6f} Grad Norm 1.{second:02d} 2.34s/it\n", unit="index")
lines("WeNet", {"loss": STEP}, "DEBUG TRAIN Batch {epoch}/{iter} loss {loss} lr 0.0002 rank 0\n", unit="Batch")
lines(
    "Composer",
    {"Train loss/total": STEP},
    "[batch={step}/6000]:\n\t Train time/batch: {step}\n\t Train loss/total: {loss}\n",
    unit="batch",
)
lines("Keras' guide", {"Training loss": STEP}, "Training loss (for one batch) at step {step}: {loss}\n", unit="step")
lines(
    "sentences",
    {"training loss": AT, "valid loss": LATER},
    "The training loss for Epoch {i} is {loss}\nThe valid loss is {val}\n",
    unit="Epoch",
)
lines("a count and a number", {"value": STEP}, "{step:7d}/  60000: {loss}\n", unit="batch")
lines("an epoch and a number", {"value": AT}, "Epoch {i}: {loss}\n", unit="Epoch")
lines("the counter behind its metrics", {"loss": STEP}, "loss: {loss}\nfinished step {step}\n", unit="step")
lines(
    "sorted keys over several lines",
    {"loss": STEP},
    "{{'learning_rate': 0.1,\n 'loss': {loss},\n 'step': {step}}}\n",
    unit="step",
)
lines(
    "MMEngine's evaluations with counts of their own",
    {"val mIoU": STEP},
    "mmengine - INFO - Iter(train) [{step:6d}/160000]  lr: 9.9e-03  memory: 1\n"
    "mmengine - INFO - Iter(val) [500/500]    mIoU: {acc}  time: 0.0617\n",
    unit="Iter",
)


@layout("text with decimal commas", {"loss": STEP}, unit="step")
def text_with_commas(folder: Path) -> Path:
    return put(folder / "l.log", "".join(f"step {s} loss {v:.3f}\n" for s, v in zip(STEPS, LOSS, strict=True)).replace(".", ","))


# Runs and folders


def event_record(step: int, values: dict[str, float]) -> bytes:
    """An event of TensorBoard, in protobuf."""

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    summary = b"".join(
        field(1, field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)) for tag, value in values.items()
    )
    message = varint(1 << 3 | 1) + struct.pack("<d", 0.0) + varint(2 << 3) + varint(step) + field(5, summary)
    return struct.pack("<Q", len(message)) + b"\0" * 4 + message + b"\0" * 4  # readers that check sums are not needed


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def events(folder: Path, **tags: list[float]) -> Path:
    rows = [event_record(s, {tag.replace("__", "/"): values[i] for tag, values in tags.items()}) for i, s in enumerate(STEPS)]
    return put(folder / "events.out.tfevents.1700000000.host.1.0", b"".join(rows))


@layout("a TensorBoard file", {"train/loss": STEP, "eval/accuracy": STEP}, unit="step")
def tensorboard_file(folder: Path) -> Path:
    return events(folder, train__loss=LOSS, eval__accuracy=ACCURACY, lr=[0.1] * POINTS)


@layout("a TensorBoard folder with two runs", {"a: loss": STEP, "b: loss": STEP_LATER}, unit="step")
def tensorboard_runs(folder: Path) -> Path:
    events(folder / "runs/a", loss=LOSS)
    events(folder / "runs/b", loss=VALIDATION)
    return folder / "runs"


@layout(
    "Keras' TensorBoard folder",
    {"train epoch_loss": STEP, "validation epoch_loss": STEP_LATER},
    unit="step",
    together="memorised first",
)
def tensorboard_keras(folder: Path) -> Path:
    events(folder / "logs/train", epoch_loss=LOSS)
    events(folder / "logs/validation", epoch_loss=VALIDATION)
    return folder / "logs"


def wandb_bytes(rows: Sequence[dict[str, Any]]) -> bytes:
    """A run file of W&B: LevelDB's log of protobuf records."""

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for i, row in enumerate(rows):
        items = b"".join(field(1, field(1, key.encode()) + field(16, json.dumps(value).encode())) for key, value in row.items())
        data = varint(1 << 3) + varint(i + 1) + field(2, items)
        kind = 1
        while True:
            left = 32_768 - len(out) % 32_768
            if left < 7:
                out += b"\0" * left
                continue
            part, data = data[: left - 7], data[left - 7 :]
            kind = (1 if not data else 2) if kind in (1, 4) else (4 if not data else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            if not data:
                break
            kind = 2
        kind = 1
    return bytes(out)


@layout("a W&B run folder", {"abc123: loss": STEP}, unit="_step")
def wandb_run(folder: Path) -> Path:
    rows = [{"loss": v, "_step": s, "_timestamp": 1.7e9 + s, "_runtime": 1.0 * s} for s, v in zip(STEPS, LOSS, strict=True)]
    put(folder / "wandb/offline-run-20240101_120000-abc123/run-abc123.wandb", wandb_bytes(rows))
    return put(folder / "wandb/offline-run-20240101_120000-abc123/files/wandb-summary.json", '{"loss": 0.5}').parents[1]


def mlflow_run(folder: Path, name: str, **metrics: list[float]) -> None:
    put(folder / "meta.yaml", f"artifact_uri: x\nrun_name: {name}\nstart_time: 17{name}\nstatus: 3\n")
    for metric, values in metrics.items():
        put(
            folder / "metrics" / metric,
            "".join(f"17{i:011d} {v} {s}\n" for i, (s, v) in enumerate(zip(STEPS, values, strict=True))),
        )


@layout("an mlruns folder", {"calm-1: loss": STEP, "wild-2: loss": STEP_LATER}, unit="step")
def mlruns(folder: Path) -> Path:
    put(folder / "mlruns/0/meta.yaml", "name: Default\n")
    mlflow_run(folder / "mlruns/0/0a1b", "calm-1", loss=LOSS)
    mlflow_run(folder / "mlruns/0/0c2d", "wild-2", loss=VALIDATION)
    return folder / "mlruns"


# What is refused, by its name


@layout("a Git-LFS pointer", refused="Git-LFS pointer")
def lfs(folder: Path) -> Path:
    return put(folder / "log.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")


@layout("an Excel workbook", refused="Excel workbook")
def excel(folder: Path) -> Path:
    return put(folder / "log.xlsx", b"PK\x03\x04\x14\x00\x06\x00" + bytes(100))


@layout("a checkpoint", refused="PyTorch checkpoint")
def torch_file(folder: Path) -> Path:
    return put(folder / "model.pt", b"PK\x03\x04\x00\x00\x08\x08" + bytes(100))


@layout("a Parquet file", refused="Parquet")
def parquet(folder: Path) -> Path:
    return put(folder / "log.parquet", b"PAR1" + bytes(100))


@layout("a table of results", refused="one row a run")
def results(folder: Path) -> Path:
    return table(
        folder / "runs.csv",
        ["Name", "State", "lr", "train_loss"],
        [(f"run-{i}", "finished", 0.1 * i, 2.0 - 0.01 * i) for i in range(40)],
    )


@layout("a table of seeds", refused="one row a run")
def results_by_seed(folder: Path) -> Path:
    return table(folder / "runs.csv", ["seed", "lr", "final_loss"], [(i, 0.1, 2.0 - 0.01 * i) for i in range(40)])


@layout("a table of settings", refused="one row a run")
def results_by_setting(folder: Path) -> Path:
    return table(folder / "runs.csv", ["lr", "wd", "acc"], [(10.0 ** -(i % 5), i % 3, 0.5 + 0.001 * i) for i in range(60)])


@layout("commas that may be either", refused="thousands or decimals")
def ambiguous(folder: Path) -> Path:
    return put(folder / "l.tsv", "step\tloss\n" + "".join(f"{i}\t{2.1 - i / 1e4:.3f}\n".replace(".", ",") for i in range(900)))


@layout("a notebook", refused="notebook")
def notebook(folder: Path) -> Path:
    return put(folder / "train.ipynb", json.dumps({"cells": [], "nbformat": 4}))


@layout("an SQLite database", refused="SQLite")
def sqlite(folder: Path) -> Path:
    return put(folder / "mlflow.db", b"SQLite format 3\0" + bytes(100))


@layout("a web page", refused="web page")
def web(folder: Path) -> Path:
    return put(folder / "log.html", "<!DOCTYPE html><html>loss 2.3</html>")
