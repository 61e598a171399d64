"""Logs of every format give the same curve, and bad ones one clear sentence."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from eureka.curves.grid import Array
from eureka.curves.readers import delimited
from eureka.curves.readers import table as tables
from eureka.curves.readers.curve import read_curve, read_log
from eureka.curves.readers.layout import Layout
from eureka.curves.readers.numbers import BROKEN, NAN
from eureka.curves.readers.table import TableBuilder
from eureka.curves.readers.tensorboard import scalars
from eureka.errors import RequestError, UnknownNameError

STEPS = np.arange(0, 500, 5, dtype=float)
LOSS = np.round(2.0 + np.cos(STEPS / 50.0), 6)
RATE = np.where(STEPS < 250, 0.1, 0.01)


def table(delimiter: str, header: bool = True) -> str:
    rows = [delimiter.join(map(repr, row)) for row in zip(STEPS.tolist(), LOSS.tolist(), RATE.tolist(), strict=True)]
    return "\n".join(([delimiter.join(["step", "train_loss", "lr"])] if header else []) + rows) + "\n"


def records() -> list[dict[str, float]]:
    return [{"step": s, "loss": v, "learning_rate": r} for s, v, r in zip(STEPS, LOSS, RATE, strict=True)]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", " "])
def test_any_delimiter_is_read(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "log.txt"
    file.write_text(table(delimiter))
    curve = read_curve(file)
    assert (curve.metric, curve.step_name, curve.points) == ("train_loss", "step", 100)
    assert np.array_equal(curve.steps, STEPS)
    assert np.array_equal(curve.values, LOSS)
    assert curve.lr is not None
    assert np.array_equal(curve.lr, RATE)


def test_a_table_without_header_has_its_steps_first(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(table(",", header=False))
    curve = read_curve(file)
    assert (curve.metric, curve.step_name) == ("column 2", "column 1")
    assert np.array_equal(curve.values, LOSS)


def test_a_single_column_is_the_loss(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("\n".join(map(str, LOSS)))
    curve = read_curve(file)
    assert np.array_equal(curve.values, LOSS)
    assert curve.step_name == "row number"


def test_a_gzipped_table_is_read(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress(table(",").encode()))
    assert np.array_equal(read_curve(file).values, LOSS)


def test_quoted_fields_comments_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(
        (
            '# made by hand\r\n"step","train_loss"\r\n' + "".join(f'"{s}","{v}"\r\n' for s, v in zip(STEPS, LOSS, strict=True))
        ).encode()
    )
    assert np.array_equal(read_curve(file).values, LOSS)


def test_fast_and_slow_parsing_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log.csv"
    file.write_text(table(","))
    monkeypatch.setattr(delimited, "BLOCK", 300)  # many blocks that end within lines
    fast = read_curve(file)
    monkeypatch.setattr(delimited, "_columns", delimited._field_by_field)
    slow = read_curve(file)
    assert np.array_equal(fast.steps, slow.steps)
    assert np.array_equal(fast.values, slow.values)
    assert fast.points == slow.points == 100


def test_lightning_rows_that_lack_the_loss_are_left_out(tmp_path: Path) -> None:
    lines = ["epoch,step,train_loss,val_loss,lr-AdamW"]
    for step, value, rate in zip(STEPS, LOSS, RATE, strict=True):
        lines += [f"0,{step:.0f},{value},,", f"0,{step:.0f},,{value + 1},", f"0,{step:.0f},,,{rate}"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    curve = read_curve(tmp_path)
    assert (curve.metric, curve.step_name) == ("train_loss", "step")
    assert np.array_equal(curve.values, LOSS)
    assert curve.lr is not None
    assert np.array_equal(curve.lr, RATE)
    assert np.array_equal(read_curve(tmp_path, column="val_loss").values, LOSS + 1)


def test_a_wandb_export_gives_the_mean_and_not_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "wandb_export.csv"
    name = "happy-lion-7 - train/loss"
    head = f'"Step","{name}__MIN","{name}__MAX","{name}"\n'
    file.write_text(head + "".join(f'"{s:.0f}","{v - 1}","{v + 1}","{v}"\n' for s, v in zip(STEPS, LOSS, strict=True)))
    curve = read_curve(file)
    assert (curve.metric, curve.step_name) == (name, "Step")
    assert np.array_equal(curve.values, LOSS)


def test_json_lines_and_our_own_run_folders_are_read(tmp_path: Path) -> None:
    lines = [
        {"step": s, "train_loss": v, "validation_loss": v + 1, "train_accuracy": 0.5, "lr": 1e-3}
        for s, v in zip(STEPS, LOSS, strict=True)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 500, "tr')
    curve = read_curve(tmp_path)
    assert (curve.metric, curve.step_name) == ("train_loss", "step")
    assert np.array_equal(curve.values, LOSS)
    assert "validation_loss" in curve.metrics


def test_a_trainer_state_is_read_with_its_rate_and_without_its_summary(tmp_path: Path) -> None:
    history = [*records(), {"step": 500, "train_runtime": 3.0, "train_loss": 9.9}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 500, "log_history": history}, indent=2))
    curve = read_curve(tmp_path / "trainer_state.json")
    assert (curve.metric, curve.step_name) == ("loss", "step")
    assert np.array_equal(curve.values, LOSS)
    assert curve.lr is not None
    assert np.array_equal(curve.lr, RATE)


def test_json_lists_and_columns_are_read(tmp_path: Path) -> None:
    for document in (records(), {"step": STEPS.tolist(), "loss": LOSS.tolist()}, LOSS.tolist()):
        file = tmp_path / "log.json"
        file.write_text(json.dumps(document))
        assert np.array_equal(read_curve(file).values, LOSS)


def test_tensorboard_gives_every_point_and_agrees_with_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    for step in range(12_000):
        writer.add_scalar("train/loss", 2.0 + np.cos(step / 500), step)
        if step % 100 == 0:
            writer.add_scalar("lr", 0.1, step, new_style=True)
    writer.add_text("note", "not a scalar", 0)
    writer.close()
    curve = read_curve(tmp_path)
    theirs = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    events = theirs.Scalars("train/loss")
    assert curve.points == len(events) == 12_000
    assert np.array_equal(curve.steps, [event.step for event in events])
    assert np.array_equal(curve.values, [event.value for event in events])
    assert set(curve.metrics) == {"train/loss", "lr"}
    assert curve.lr is not None
    assert curve.lr == pytest.approx(0.1)


def test_a_tensorboard_record_cut_short_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    for step in range(50):
        writer.add_scalar("loss", 1.0, step)
    writer.close()
    [file] = tmp_path.glob("*tfevents*")
    file.write_bytes(file.read_bytes()[:-5])
    with file.open("rb") as opened:
        assert len(list(scalars(file, opened))) == 49


def test_columns_can_be_set_and_wrong_ones_name_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(table(","))
    assert read_curve(file, column="lr").metric == "lr"
    assert read_curve(file, step_column="lr").step_name == "lr"
    with pytest.raises(UnknownNameError, match="did you mean 'train_loss'"):
        read_curve(file, column="train_los")


def test_a_learning_rate_may_come_from_a_file_of_its_own(tmp_path: Path) -> None:
    file, rates = tmp_path / "log.csv", tmp_path / "lr.txt"
    file.write_text("step,loss\n" + "".join(f"{s},{v}\n" for s, v in zip(STEPS, LOSS, strict=True)))
    rates.write_text("step,lr\n0,0.1\n250,0.01\n")
    curve = read_curve(file, lr_file=rates)
    assert curve.lr is not None
    assert np.array_equal(curve.lr, RATE)
    rates.write_text("lr\n0.1\n0.01\n")
    with pytest.raises(RequestError, match="2 learning rates without steps for a curve of 100 points"):
        read_curve(file, lr_file=rates)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\xfe", "is empty"),
        (b"\xfe\xff\0\n", "is empty"),
        (b"\xef\xbb\xbf\n", "is empty"),
        (b"\x89PNG\x00\x00\x1a", "is binary"),
        (b"step,loss\n1,2.0\n", "one point"),
        (b"step,loss\n1,nan\n2,nan\n", "has no finite value, and 2 that are nan or inf"),
        (b"name,place\nanna,rome\nbo,oslo\n", "holds no numbers"),
        (b"step,loss\n1,2\n2,3,4\n3,4\n", "line 3 has 3 fields where the first has 2"),
        (b'{"a": [1, 2], "b": [1]}', "different lengths"),
        (b"[]", "holds no log"),
        (b'{"loss": 1}\nnonsense\n{"loss": 2}\n', "line 2 is not a JSON object"),
        (b"step\n1\n2\n", "no column of numbers is left for the loss"),
    ],
)
def test_a_bad_file_gives_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=message) as caught:
        read_curve(file)
    assert "\n" not in str(caught.value)


def test_missing_files_and_empty_folders_give_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file"):
        read_curve(tmp_path / "nothing.csv")
    with pytest.raises(RequestError, match=r"without metrics\.jsonl"):
        read_curve(tmp_path)
    (tmp_path / "bad.csv.gz").write_bytes(b"this is not gzip")
    with pytest.raises(RequestError, match="cannot be read"):
        read_curve(tmp_path / "bad.csv.gz")


def test_the_last_line_of_a_run_in_progress_may_be_short(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss,lr\n1,2.0,0.1\n2,1.9,0.1\n3,1")
    assert read_curve(file).points == 2


def test_a_table_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, parsed, told = tmp_path / "log.csv", 0, 0
    file.write_text(table(","))
    whole = delimited._columns

    def counted(path: Path, layout: Layout, builder: TableBuilder, text: bytes, line: int, last: bool) -> list[Array]:
        nonlocal parsed
        columns = whole(path, layout, builder, text, line, last)
        parsed += len(columns[0])
        return columns

    def progress(count: int) -> None:
        nonlocal told
        told += count

    monkeypatch.setattr(delimited, "BLOCK", 300)
    monkeypatch.setattr(delimited, "_columns", counted)
    curve = read_curve(file, progress=progress)
    assert curve.lr is not None
    assert parsed == curve.points == 100
    assert told == len(table(",")) - len("step,train_loss,lr\n")


def test_columns_of_numbers_are_known_by_the_first_block_that_has_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss,note\n" + ",,\n" * 200 + "".join(f"{i},{2.0 - i},\n" for i in range(50)))
    monkeypatch.setattr(delimited, "BLOCK", 100)
    curve = read_curve(file)
    assert (curve.metrics, curve.points) == (("step", "loss"), 50)


def test_a_damaged_archive_gives_one_sentence_wherever_the_damage_is(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    rng = np.random.default_rng(0)
    whole = gzip.compress(("step,loss\n" + "".join(f"{i},{v}\n" for i, v in enumerate(rng.random(50_000)))).encode())
    for damaged in (whole[:200], whole[: len(whole) // 2], whole[:-300] + bytes(300)):
        file.write_bytes(damaged)
        with pytest.raises(RequestError, match="cannot be read"):
            read_curve(file)


def test_a_thinned_table_keeps_its_means_and_its_bounds() -> None:
    rng = np.random.default_rng(0)
    values, builder = rng.standard_normal(100_003), TableBuilder(cells=2000)
    steps = np.arange(len(values), dtype=float)
    for part in np.array_split(np.arange(len(values)), 37):
        builder.add({"step": steps[part], "loss": values[part]})
    thin = builder.finish()
    assert thin.points["loss"] == len(values)
    assert 400 <= thin.rows <= 1000
    assert thin.every >= len(values) / 1000
    assert np.all(np.diff(thin.columns["step"]) > 0)
    assert thin.columns["loss"].mean() == pytest.approx(values.mean(), abs=0.02)


def test_a_long_file_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "long.csv"
    with file.open("w") as out:
        out.write("step,loss\n")
        for start in range(0, 400_000, 50_000):
            out.write("".join(f"{i},{2.0 - i / 1e6:.5f}\n" for i in range(start, start + 50_000)))
    monkeypatch.setattr(tables, "CELLS", 40_000)
    monkeypatch.setattr(delimited, "BLOCK", 1 << 16)
    tracemalloc.start()
    curve = read_curve(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert curve.points == 400_000
    assert len(curve.steps) <= 20_001
    assert peak < 3_000_000  # the table alone would take 6.4 MB, and the text 6 MB


def _broken(written: list[str], layout: str) -> tuple[str, str]:
    """A log of a value a step, from step 0 on."""
    rows = enumerate(written)
    if layout == "csv":
        return "log.csv", "step,loss\n" + "".join(f"{i},{value}\n" for i, value in rows)
    if layout == "csv with gaps":
        return "log.csv", "step,loss,val_loss\n" + "".join(f"{i},{value},\n{i},,1.0\n" for i, value in rows)
    if layout == "json":
        words = {"nan": "NaN", "inf": "Infinity"}
        return "log.jsonl", "".join(f'{{"step": {i}, "loss": {words.get(value, value)}}}\n' for i, value in rows)
    if layout == "json with texts":
        words = {"nan": '"NaN"', "inf": '"Infinity"'}
        return "log.jsonl", "".join(f'{{"step": {i}, "loss": {words.get(value, value)}}}\n' for i, value in rows)
    return "log.txt", "".join(f"step {i}: {layout.format(value)}\n" for i, value in rows)


@pytest.mark.parametrize(
    "layout",
    [
        *("csv", "csv with gaps", "json", "json with texts", "loss {}, time 20ms", "loss {} lr 0.1", "loss: {}"),
        "loss=tensor({}, device='cuda:0')",
    ],
)
@pytest.mark.parametrize("word", ["nan", "inf"])
def test_values_at_the_end_that_are_no_numbers_are_kept_apart_with_their_steps(layout: str, word: str, tmp_path: Path) -> None:
    name, text = _broken([f"{2 - 0.01 * i:.2f}" for i in range(30)] + [word] * 5, layout)
    (tmp_path / name).write_text(text)
    curve = read_log(tmp_path / name)[0]
    assert (curve.metric, len(curve.values), curve.points) == ("loss", 30, 30)
    assert curve.broken.tolist() == [30, 31, 32, 33, 34]


def test_a_value_that_is_no_number_once_or_wherever_nothing_was_measured_is_a_gap(tmp_path: Path) -> None:
    once = ["2.0"] * 30 + ["nan"] + ["2.0"] * 30
    measured = [f"{3 - 0.1 * (i // 5)}" if i % 5 == 0 else "nan" for i in range(100)] + ["nan"] * 15
    for written, points in [(once, 60), (measured, 20)]:
        name, text = _broken(written, "csv")
        (tmp_path / name).write_text(text)
        [curve] = read_log(tmp_path / name)
        assert len(curve.values) == points
        assert not len(curve.broken)


def test_values_of_tensorboard_that_are_no_numbers_are_kept_apart(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(tmp_path)
    for i in range(30):
        writer.add_scalar("loss", 2.0 if i < 20 else float("nan"), i)
    writer.close()
    [curve] = read_log(tmp_path)
    assert len(curve.values) == 20
    assert curve.broken.tolist() == list(range(20, 30))


def test_rows_of_a_long_log_that_are_averaged_keep_what_is_no_number_only_where_there_is_no_other() -> None:
    builder = TableBuilder(cells=8)
    for i, loss in enumerate([1.0, NAN, BROKEN, 3.0, BROKEN, NAN, BROKEN, BROKEN]):
        builder.add_record({"step": float(i)} | ({} if np.isnan(loss) else {"loss": loss}))
    columns = builder.finish().columns
    assert columns["step"].tolist() == [0.5, 2.5, 4.5, 6.5]
    assert columns["loss"].tolist() == [1.0, 3.0, np.inf, np.inf]


LEAP = [-2.3 if i < 30 else -0.3 for i in range(60)]


@pytest.mark.parametrize(
    ("name", "sign", "rising", "note"),
    [
        ("elbo", 1, True, "elbo is below zero: more is taken to be better; --falling says otherwise"),
        ("val_log_likelihood", 1, True, None),
        ("log_likelihood", -1, True, None),
        ("negative log likelihood", -1, False, None),
        ("elbo", -1, False, "elbo is not below zero: less is taken to be better; --rising says otherwise"),
        ("neg_elbo", -1, False, None),
        ("bits_per_byte", -1, False, None),
        ("val nats per token", -1, False, None),
    ],
)
def test_which_way_is_better_is_told_by_the_name_or_else_by_the_sign(
    name: str, sign: int, rising: bool, note: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "log.csv"
    file.write_text(f"step,{name}\n" + "".join(f"{i},{sign * value}\n" for i, value in enumerate(LEAP)))
    [curve] = read_log(file)
    assert (curve.metric, curve.rising) == (name, rising)
    assert curve.notes == (() if note is None else (note,))


def test_a_file_of_rates_must_have_one_and_the_note_names_its_column(tmp_path: Path) -> None:
    log, rates = tmp_path / "log.csv", tmp_path / "rates.csv"
    log.write_text("step,loss\n" + "".join(f"{i},{2 + i % 3}\n" for i in range(40)))
    with pytest.raises(RequestError, match=r"holds no learning rate \(there is step, loss\); call its column lr"):
        read_log(log, lr_file=log)
    rates.write_text("step,alpha\n" + "".join(f"{i},{0.1 if i % 2 else 0.01}\n" for i in range(40)))
    [curve] = read_log(log, lr_file=rates)
    assert f"the learning rate is alpha of {rates}" in curve.notes
    assert curve.lr is not None


def test_numbers_of_a_text_that_are_not_named_like_a_loss_are_offered(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("".join(f"it={i} L_tot={3 - 0.01 * i:.3f} L_kl={1 - 0.01 * i:.3f} time=3s\n" for i in range(40)))
    [curve] = read_log(file)
    assert (curve.metric, curve.metrics) == ("L_kl", ("it", "L_kl", "L_tot"))
    with pytest.raises(UnknownNameError, match="did you mean 'L_tot'"):
        read_log(file, column="L_to")
    [chosen] = read_log(file, column="L_tot")
    assert chosen.values[0] == 3.0


ENDED: dict[str, tuple[str, str]] = {
    "a last row with another loss": (
        "step,loss,test_loss",
        "".join(f"{i},{3 - 0.01 * i},\n" for i in range(40)) + "40,nan,0.5\n",
    ),
    "train and then validation": (
        "step,train_loss,val_loss",
        "".join(f"{i},{3 - 0.01 * i},nan\n" for i in range(40)) + "".join(f"{i},nan,{3 - 0.01 * i}\n" for i in range(40)),
    ),
    "a run that is shorter": (
        "step,a - loss,b - loss",
        "".join(f"{i},{3 - i / 40 if i < 30 else 'nan'},{3 - i / 60}\n" for i in range(60)),
    ),
    "a metric of the first rows": ("step,loss,acc", "".join(f"{i},{3 - i / 60},{0.5 if i < 20 else 'nan'}\n" for i in range(60))),
}


@pytest.mark.parametrize("name", list(ENDED))
def test_a_column_that_ends_while_another_loss_goes_on_has_not_diverged(name: str, tmp_path: Path) -> None:
    head, rows = ENDED[name]
    (tmp_path / "log.csv").write_text(f"{head}\n{rows}")
    curves = read_log(tmp_path / "log.csv")
    assert curves
    assert not any(len(curve.broken) for curve in curves)
    assert [curve.run for curve in curves if curve.nan_after] == (["a"] if name == "a run that is shorter" else [])


def test_both_losses_of_a_run_that_diverges_are_no_numbers_and_its_accuracy_may_be_one(tmp_path: Path) -> None:
    rows = "".join(f"{i},{3 - i / 60},{3 - i / 70},0.5\n" for i in range(60)) + "".join(
        f"{i},nan,nan,0.1\n" for i in range(60, 70)
    )
    (tmp_path / "log.csv").write_text(f"step,train_loss,val_loss,acc\n{rows}")
    assert [len(curve.broken) for curve in read_log(tmp_path / "log.csv")] == [10, 10, 0]


def test_a_loss_that_is_never_a_number_is_noted_and_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss,entropy\n" + "".join(f"{i},nan,{1 + i % 3}\n" for i in range(40)))
    [curve] = read_log(tmp_path / "log.csv")
    assert curve.metric == "entropy"
    assert "loss is nan or inf in all of its 40 rows" in curve.notes


def test_a_rate_that_is_never_a_number_does_not_hide_the_other(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        "".join(f'{{"step": {i}, "lr": NaN, "lr-AdamW": 0.1, "loss": {i % 3}}}\n' for i in range(40))
    )
    [curve] = read_log(tmp_path / "log.jsonl")
    assert curve.lr is not None


@pytest.mark.parametrize("phrase", ["number of nan iterations:   0", "skipped inf updates 0", "nan steps 0"])
def test_a_count_of_what_is_no_number_is_no_counter(phrase: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "".join(f" iteration {i}/ 500 | lm loss: {3 - 0.01 * i:.3f} | {phrase} |\n" for i in range(1, 60))
    )
    [curve] = read_log(tmp_path / "log.txt")
    assert (curve.metric, curve.step_name) == ("lm loss", "iteration")
    assert not any("in every row" in note for note in curve.notes)


def test_log_probabilities_of_a_preference_loss_are_not_judged_beside_it(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "step,loss,logp_rejected,policy/logprobs\n" + "".join(f"{i},{1 - i / 99},-{60 + i},-{i}\n" for i in range(60))
    )
    assert [curve.metric for curve in read_log(tmp_path / "log.csv")] == ["loss"]
