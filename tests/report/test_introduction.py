"""What stands before the curves: the task with samples, the fixes in a line each, code and command. All of it is true."""

from __future__ import annotations

import base64
import inspect
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from eureka.attention.registry import FIXES
from eureka.data.text import named_corpus
from eureka.report.groups import Groups
from eureka.report.introduction import SCHEDULED, Use, fix_lines, task_cards, use
from eureka.report.write import write_report
from eureka.runs import Origin, TaskSamples, find_runs
from eureka.study.comparison import compare_arms
from eureka.tasks.labelled import SEED, labelled_samples
from eureka.tasks.masked_text import MASK, MOST_ASKED, MaskedText
from eureka.tasks.registry import TASKS
from eureka.tasks.task import IGNORED

GroupsOf = Callable[[Path], Groups]


def test_a_run_keeps_labelled_samples_and_the_page_shows_them(real_study: Path, tmp_path: Path, parse: Any) -> None:
    batch = TASKS.build("tiles", {}).sample(3, Generator().manual_seed(SEED))
    kept = find_runs(real_study)[0].samples()
    assert [one.label for one in kept.samples] == [str(int(label)) for label in batch.labels]
    assert [one.steps["target_1"] for one in kept.samples] == [str(int(value)) for value in batch.steps["target_1"]]
    assert kept.rows == ["indicator a", "target a", "target b", "indicator b"]
    page = parse(write_report([real_study], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [a["src"] for name, a in page.elements if name == "img"] == [
        f"data:image/png;base64,{s.picture}" for s in kept.samples
    ]
    assert f"label {kept.samples[0].label}" in page.text
    assert "tiles: synthetic noisy tiles" in page.text


def test_a_picture_has_a_pixel_for_each_feature_of_each_token() -> None:
    from PIL import Image

    [first, *_] = labelled_samples(TASKS.build("tiles", {})).samples
    assert Image.open(io.BytesIO(base64.b64decode(first.picture))).size == (16, 16)


def test_tokens_are_kept_as_text() -> None:
    found = labelled_samples(TASKS.build("induction", {}))
    batch = TASKS.build("induction", {}).sample(3, Generator().manual_seed(SEED))
    assert [one.tokens for one in found.samples] == [[str(token) for token in row] for row in batch.inputs.tolist()]
    assert all(one.label.startswith("asked: ") and not one.picture for one in found.samples)
    assert found.rows == []


@pytest.fixture
def own_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which tags are frequent, so that samples hold them."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "own <b>.txt"
    animals = ("cat", "dog", "owl", "fox")
    path.write_text("".join(f"the {one} {n} sees <script>the {two}\n" for n in range(90) for one in animals for two in animals))
    return path


def own_samples(path: Path) -> tuple[MaskedText, TaskSamples]:
    task = MaskedText(corpus=str(path), vocabulary=300, length=40)
    return task, labelled_samples(task)


def test_masked_text_is_kept_as_words_and_what_is_asked_fills_its_masks(own_text: Path) -> None:
    _, found = own_samples(own_text)
    for one in found.samples:
        shown = " ".join(one.tokens)
        assert "[MASK]" in shown
        assert any(word in shown for word in ("the ", "sees", "cat", "dog", "owl", "fox"))
        assert not any(token.isdigit() and int(token) > 89 for token in one.tokens)
        assert re.fullmatch(r"asked: (“[^”]+” ?)+", one.label)


def test_a_sample_with_its_masks_filled_is_a_piece_of_the_text(own_text: Path) -> None:
    task, _ = own_samples(own_text)
    batch = task.sample(20, Generator().manual_seed(0))
    for tokens, labels in zip(batch.steps["token"], batch.labels, strict=True):
        shown = tokens.masked_fill(labels != IGNORED, MASK)  # all that is asked for is hidden
        read = task.as_text(shown, labels)
        assert read is not None
        text = read[0]
        for piece in re.findall("“(.*?)”", read[1]):
            text = text.replace("[MASK]", piece.replace("↵", "\n"), 1)
        if int((labels != IGNORED).sum()) <= MOST_ASKED:
            assert text in own_text.read_text()


def test_text_of_samples_is_escaped_in_the_page(tmp_path: Path, own_text: Path, plant: Any, parse: Any) -> None:
    task, found = own_samples(own_text)
    assert any("<script>" in " ".join(one.tokens) for one in found.samples)
    corpus = named_corpus(task.corpus)
    run = plant(tmp_path / "runs", {"task.name": "masked_text", "task.corpus": corpus}, leap=400)
    run.write_samples(found)
    html = write_report([tmp_path / "runs"], tmp_path / "report.html").read_text(encoding="utf-8")
    introduction = html[html.index('<div class="introduction">') : html.index("Make it again")]
    assert "<script>" not in introduction
    assert "&lt;script&gt;" in introduction
    assert "hidden words of own text (own &lt;b&gt;.txt)" in introduction
    assert "English" not in introduction


def test_own_text_and_ours_have_a_card_each(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for corpus in ("sotu", f"/home/me/poems.txt@{'0' * 16}"):
        plant(tmp_path, {"task.name": "masked_text", "task.corpus": corpus}, leap=400)
    assert sorted(card.summary for card in task_cards(groups_of(tmp_path).runs)) == [
        "hidden words of own text (poems.txt)",
        "hidden words of real English text",
    ]


def test_samples_that_an_older_version_kept_as_numbers_are_shown(study: Path, tmp_path: Path, parse: Any) -> None:
    old = {"samples": [{"label": "asked: 260 23", "picture": "", "tokens": ["23", "274", "0"], "steps": {}}], "rows": []}
    for folder in find_runs(study):
        (folder.path / "samples.json").write_text(json.dumps(old))
    text = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "23 274 0" in text
    assert "asked: 260 23" in text


def test_samples_take_nothing_from_the_random_numbers_of_training() -> None:
    torch.manual_seed(0)
    labelled_samples(TASKS.build("tiles", {}))
    after = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(3))


def test_a_run_without_samples_has_a_card_without_them(study: Path, groups_of: GroupsOf) -> None:
    [card] = task_cards(groups_of(study).runs)
    assert (card.name, card.samples) == ("tiles", TaskSamples())
    assert card.summary == TASKS.entry("tiles").summary


def test_every_fix_and_start_is_told_in_a_line_and_each_credited_to_its_own_source(
    tmp_path: Path, plant: Any, groups_of: GroupsOf
) -> None:
    for fix, start in itertools.product(["softmax", "norm_softmax", "not:Ours", "unknown"], ["paper", "clear"]):
        plant(tmp_path, {"attention.name": fix, "model.start": start}, leap=400)
    found = fix_lines(groups_of(tmp_path))
    lines, sources = {line.fix.name: line.summary for line in found}, {line.fix.name: line.source for line in found}
    assert lines["norm_softmax"] == FIXES.entry("norm_softmax").summary
    clear = "before the first step, learned positions as large as the content, and W_Q and W_K so that"
    assert lines["softmax (start=clear)"].startswith(f"softmax(q·k / √d): the baseline (Vaswani et al. 2017); {clear}")
    assert sources["softmax (start=clear)"] == sources["unknown (start=clear)"] == "our own method, eureka.clear_start"
    assert sources["norm_softmax"] == FIXES.entry("norm_softmax").source
    assert lines["unknown (start=clear)"].startswith(clear)
    assert "unknown" not in lines


class Small(torch.nn.Module):
    """A model of somebody's, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
        self.blocks = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(8, 16))

    def forward(self, x: torch.Tensor) -> Any:
        return self.blocks(x + self.positions)


def found_use(folder: Path, groups_of: GroupsOf) -> Use | None:
    groups = groups_of(folder)
    return use(groups, compare_arms(groups.grouping))


@pytest.mark.parametrize(
    ("changes", "origin", "lines"),
    [
        ({"attention.name": "norm_softmax"}, {}, ['eureka.patch(model, "norm_softmax")']),
        (
            {"attention.name": "temperature", "attention.temperature": 0.2},
            {"attention.temperature": 0.2},
            ["eureka.patch(model, \"temperature\", settings={'temperature': 0.2})"],
        ),
        (
            {"attention.name": "heat_treatment"},
            {},
            ['eureka.patch(model, "heat_treatment", total_steps=1200)'],
        ),
        ({"model.start": "clear"}, {}, ["eureka.clear_start(model, inputs)"]),
        (
            {"attention.name": "norm_softmax", "model.start": "clear_positions"},
            {},
            [
                'eureka.patch(model, "norm_softmax")',
                "eureka.clear_start(model, inputs, logits=None)",
            ],
        ),
    ],
)
def test_the_code_that_the_page_gives_runs(
    tmp_path: Path, plant: Any, groups_of: GroupsOf, changes: dict[str, Any], origin: dict[str, Any], lines: list[str]
) -> None:
    plant(tmp_path, {"model.start": "paper"}, leap=None)
    plant(tmp_path, {"model.start": "paper"} | changes, leap=400, origin=Origin("tiles", origin))
    found = found_use(tmp_path, groups_of)
    assert found is not None
    assert found.lines == ["import eureka", *lines, "train(model)"]
    assert not found.decided
    assert ("Patch the model before" in found.note, "`inputs` is one batch" in found.note) == (
        "attention.name" in changes,
        "model.start" in changes,
    )

    model, inputs = Small(), torch.randn(4, 8, 16)
    trained = []
    exec("\n".join(found.lines), {"model": model, "inputs": inputs, "train": lambda model: trained.append(model(inputs).mean())})
    assert len(trained) == 1


def test_a_fix_that_is_decided_to_help_is_given_as_such(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for fix, seed in itertools.product(["softmax", "norm_softmax"], range(6)):
        plant(tmp_path, {"attention.name": fix, "training.seed": seed}, leap=300 if fix == "norm_softmax" else 900)
    found = found_use(tmp_path, groups_of)
    assert found is not None
    assert (found.fix.name, found.decided) == ("norm_softmax", True)


@pytest.mark.parametrize(
    "changes",
    [{"attention.name": "softmax"}, {"attention.name": "softmax", "training.qk_lr_scale": 10.0}],
    ids=["plain", "control"],
)
def test_what_no_line_of_code_gives_is_not_given(
    tmp_path: Path, plant: Any, groups_of: GroupsOf, changes: dict[str, Any]
) -> None:
    plant(tmp_path, changes, leap=400)
    assert found_use(tmp_path, groups_of) is None


def test_where_no_run_left_the_plateau_nothing_is_recommended(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, {"attention.name": "norm_softmax"}, leap=None)
    assert found_use(tmp_path, groups_of) is None


def test_the_fixes_that_must_know_the_length_of_training_are_named() -> None:
    assert {name for name in FIXES.names() if "total_steps" in inspect.signature(FIXES.entry(name).load()).parameters} == set(
        SCHEDULED
    )


def test_the_page_opens_in_the_order_in_which_it_is_read(real_study: Path, tmp_path: Path, parse: Any) -> None:
    text = parse(write_report([real_study], tmp_path / "report.html").read_text(encoding="utf-8")).text
    landmarks = ["There are too few runs yet to tell", "No run left the plateau", "is its Eureka-moment", "The task"]
    landmarks += ["What each fix does", "Make it again", "Each curve is one run", "Results", "Make it again, exactly"]
    places = [text.index(landmark) for landmark in landmarks]
    assert places == sorted(places)
    assert text.index("Eureka-moment") == text.index("is its Eureka-moment") + len("is its ")


def test_the_dashed_level_says_what_it_is_the_level_of(study: Path, tmp_path: Path, parse: Any) -> None:
    text = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "the loss (0.624) and the accuracy (55\xa0%) of the best predictor that knows only the last step" in text.replace(
        " %", "\xa0%"
    )
    assert "So a waiting curve can lie above the dashed line" in text
