"""Which change of a script sets an optimiser setting: candidates, and the proof by a run of the edited script."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eureka.capture import edits
from eureka.capture.edits import Edit, change_that_works, find_edits, groups_at_first_step, verify_edit

WriteScript = Callable[[str], Path]

STEP = """
model(torch.randn(4, 3)).sum().backward()
optimizer.step()
"""


@pytest.fixture
def train(tmp_path: Path) -> WriteScript:
    def write(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def candidates(script: Path, arguments: list[str], *values: Any, setting: str = "lr", now: float = 3e-4) -> list[str]:
    wanted, *near = values or (3e-3,)
    return [str(edit) for edit in find_edits(script, arguments, setting, now, wanted, *near)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--lr", "3e-4"], "--lr 3e-4 → --lr 3e-3"),
        (["--lr=0.0003"], "--lr=0.0003 → --lr=0.003"),
        (["optim.lr=3e-4"], "optim.lr=3e-4 → optim.lr=3e-3"),
        (["+lr=3e-4"], "+lr=3e-4 → +lr=3e-3"),
        (["--eps", "3e-4", "--base-lr", "3E-04"], "--base-lr 3E-04 → --base-lr 3e-3"),
    ],
)
def test_an_argument_comes_first_and_keeps_its_form(train: WriteScript, arguments: list[str], expected: str) -> None:
    script = train("learning_rate = 3e-4\n")
    first = find_edits(script, arguments, "lr", 3e-4, 3e-3)[0]
    assert (first.kind, str(first)) == ("argument", expected)
    assert first.arguments is not None
    assert [old == new for old, new in zip(arguments, first.arguments, strict=True)].count(False) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning_rate = 3e-4", "train.py:1: learning_rate = 3e-4 → learning_rate = 3e-3"),
        ("class Config:\n    lr: float = 0.0003  # good", "train.py:2: lr: float = 0.0003 → lr: float = 0.003"),
        ("config = {'steps': 3, 'lr': 3e-4}", "train.py:1: 'lr': 3e-4 → 'lr': 3e-3"),
        ("epochs, lr = 3, 3e-4", "train.py:1: epochs, lr = 3, 3e-4 → epochs, lr = 3, 3e-3"),
        ("def fit(model, steps=3, lr=3e-4): ...", "train.py:1: lr=3e-4 → lr=3e-3"),
        ("fit(model, peak_lr=3e-4)", "train.py:1: peak_lr=3e-4 → peak_lr=3e-3"),
        ("lr: float = field(default=3e-4)", "train.py:1: default=3e-4 → default=3e-3"),
        ("lr = args.lr or 3e-4", "train.py:1: lr = args.lr or 3e-4 → lr = args.lr or 3e-3"),
        ("π = 'ü'; lr = 3e-4", "train.py:1: lr = 3e-4 → lr = 3e-3"),
        ("@click.option('-l', '--lr', default=3e-4)\ndef main(lr): ...", "add --lr 3e-3"),
        ("parser.add_argument('--lr', type=float, default=3e-4)", "add --lr 3e-3"),
        ("flags.DEFINE_float('learning_rate', 3e-4, 'help')", "add --learning_rate 3e-3"),
    ],
)
def test_a_literal_is_changed_where_it_stands(train: WriteScript, text: str, expected: str) -> None:
    edit = find_edits(train(text), [], "lr", 3e-4, 3e-3)[0]
    assert str(edit) == expected
    assert edit.kind == "argument" or edit.text in (text.replace("3e-4", "3e-3"), text.replace("0.0003", "0.003"))


def test_names_that_are_like_the_setting_come_before_others_with_the_same_value(train: WriteScript) -> None:
    script = train("eps = 0.1\ndropout_rate = 0.1\nmin_lr = 0.1\nlearning_rate = 0.1\nx = torch.optim.SGD(p, 0.1)\n")
    lines = [edit.where.partition(":")[2] for edit in find_edits(script, [], "lr", 0.1, 0.01, 5)]
    assert lines == ["5", "4", "3", "1", "2"]
    assert find_edits(script, [], "weight_decay", 0.1, 0.01)[0].where == "train.py:1"  # nothing is like it: in their order


@pytest.mark.parametrize("text", ["lr = 1e-3 * 0.3", "lr = 'high'", "lr = True", "lr = 3.0001e-4", "lr = (", "lr = -3e-4"])
def test_a_value_that_stands_nowhere_has_no_candidate(train: WriteScript, text: str) -> None:
    assert find_edits(train(text), ["--steps", "300"], "lr", 3e-4, 3e-3) == []


@pytest.mark.parametrize(
    ("call", "changed"),
    [
        ("AdamW(model.parameters())", "AdamW(model.parameters(), lr=3e-3)"),
        ("AdamW(\n    model.parameters(),\n)", "AdamW(\n    model.parameters(), lr=3e-3,\n)"),
        ("SGD(params, momentum=0.9)", "SGD(params, momentum=0.9, lr=3e-3)"),
    ],
)
def test_a_default_of_the_optimiser_is_written_into_its_call(train: WriteScript, call: str, changed: str) -> None:
    edit = find_edits(train(f"optimizer = {call}\n"), [], "lr", 1e-3, 3e-3, 1)[0]
    assert edit.text == f"optimizer = {changed}\n"
    assert not find_edits(train(f"optimizer = {call}\n"), [], "lr", 1e-3, 3e-3)  # whose line is not known


@pytest.mark.parametrize("call", ["SGD(params, rate)", "AdamW(params, lr=rate)", "AdamW(*both)", "AdamW(params, **settings)"])
def test_a_call_that_passes_the_setting_gets_no_second_one(train: WriteScript, call: str) -> None:
    assert find_edits(train(f"optimizer = {call}\n"), [], "lr", 1e-3, 3e-3, 1) == []


def test_files_that_the_script_reads_have_candidates(train: WriteScript, tmp_path: Path) -> None:
    script = train("from config import Config\nimport absent\n")
    (tmp_path / "config.py").write_text("class Config:\n    lr = 3e-4\n    eps = 3e-4\n")
    (tmp_path / "small.yaml").write_text("optim:\n  lr: 0.0003 # tuned\n  eps: 3.0e-4\n")
    (tmp_path / "big.json").write_text('{"train": {"learning_rate": 3e-4}}')
    named = ["--config", "small.yaml", f"--other={tmp_path / 'big.json'}"]
    found = find_edits(script, named, "lr", 3e-4, 3e-3)
    assert [str(edit) for edit in found] == [
        "small.yaml: optim.lr: 0.0003 → 0.003",
        "big.json: train.learning_rate: 3e-4 → 3e-3",
        "config.py:2: lr = 3e-4 → lr = 3e-3",
        "small.yaml: optim.eps: 3.0e-4 → 3e-3",
    ]
    assert found[0].text == "optim:\n  lr: 0.003 # tuned\n  eps: 3.0e-4\n"


@pytest.mark.parametrize(
    ("unedited", "edited", "works"),
    [
        ([{"lr": 0.1}], [{"lr": 1.0}], True),
        ([{"lr": 0.1}], [{"lr": 0.1}], False),
        ([{"lr": 0.0, "initial_lr": 0.1}], [{"lr": 0.0, "initial_lr": 1.0}], True),
        ([{"lr": 0.001}], [{"lr": 0.01}], True),  # a warm-up by hand
        ([{"lr": 0.001}], [{"lr": 0.002}], False),
        ([{"lr": 0.1}, {"lr": 0.01}], [{"lr": 1.0}, {"lr": 0.1}], True),  # one learning rate for each layer
        ([{"lr": 0.1}, {"lr": 0.02}], [{"lr": 1.0}, {"lr": 0.02}], True),
        ([{"lr": 0.1}, {"lr": 0.1}], [{"lr": 1.0}, {"lr": 0.1}], False),
        ([{"lr": 0.1, "weight_decay": 0.1}], [{"lr": 1.0, "weight_decay": 1.0}], False),
    ],
)
def test_an_edit_works_if_the_setting_alone_changed_and_everywhere(
    monkeypatch: pytest.MonkeyPatch, unedited: list[dict[str, float]], edited: list[dict[str, float]], works: bool
) -> None:
    edit = Edit("argument", "--lr", "--lr 0.1", "--lr 1.0", arguments=("--lr", "1.0"))
    monkeypatch.setattr(edits, "groups_at_first_step", lambda *arguments: edited if arguments[-1] is edit else unedited)
    assert verify_edit(Path("train.py"), None, ["--lr", "0.1"], edit, "lr", 0.1, 1.0, 9.0, unedited) == works
    if edited[0].get("weight_decay") is None:  # without a comparison the rest is not seen
        assert verify_edit(Path("train.py"), None, ["--lr", "0.1"], edit, "lr", 0.1, 1.0, 9.0) == works


def test_weight_decay_of_zero_and_of_some_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def works(now: float, wanted: float, unedited: list[float], edited: list[float]) -> bool:
        groups = [[{"lr": 1.0, "weight_decay": value} for value in values] for values in (unedited, edited)]
        monkeypatch.setattr(edits, "groups_at_first_step", lambda *_: groups[1])
        edit = Edit("argument", "", "", "")
        return verify_edit(Path("train.py"), None, [], edit, "weight_decay", now, wanted, 9.0, groups[0])

    assert works(0.1, 0.01, [0.1, 0.0], [0.01, 0.0])
    assert works(0.1, 0.0, [0.1, 0.0], [0.0, 0.0])
    assert works(0.0, 0.1, [0.0, 0.0], [0.1, 0.0])
    assert not works(0.0, 0.1, [0.0, 0.0], [0.0, 0.0])


# Runs of edited scripts. Each starts a process that imports torch.


def test_an_argparse_default_is_overridden_and_a_real_main_sees_it(train: WriteScript) -> None:
    script = train(
        "import argparse, os, sys, torch\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=3e-4)\n"
        "lr = parser.parse_args().lr\n"
        "assert __name__ == '__main__' and sys.modules['__main__'].lr == lr\n"
        "assert __file__ == os.path.abspath(sys.argv[0]) and sys.path[0] == os.path.dirname(os.path.realpath(__file__))\n"
        "assert 'eureka' not in sys.modules\n"
        "model = torch.nn.Linear(3, 1)\n"
        "small = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=7)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)\n"
        "small.step()\n"  # the largest optimiser counts, not the first
    )
    edit = change_that_works(script, None, [], "lr", 3e-4, 3e-3, 10)
    assert str(edit) == "add --lr 3e-3"


def test_a_key_and_a_learning_rate_that_begins_at_zero(train: WriteScript) -> None:
    script = train(
        "import sys, torch\n"
        "rate = dict(argument.split('=') for argument in sys.argv[1:])['optim.lr']\n"
        "model = torch.nn.Linear(3, 1)\n"
        "class Still(torch.optim.SGD):\n    def step(self): ...\n"
        "optimizer = Still(model.parameters(), lr=0.0)\n"
        f"for step in range(3):\n    optimizer.param_groups[0]['lr'] = float(rate) * min(step, 1)\n    {STEP.strip()}\n".replace(
            "\noptimizer.step", "\n    optimizer.step"
        )
    )
    edit = change_that_works(script, None, ["optim.lr=3e-4"], "lr", 3e-4, 3e-3)
    assert str(edit) == "optim.lr=3e-4 → optim.lr=3e-3"


def test_a_config_in_a_second_file_under_a_schedule(train: WriteScript, tmp_path: Path) -> None:
    script = train(
        "import torch\nfrom config import Config\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=Config().lr)\n"
        f"torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)\n{STEP}"
    )
    config = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    lr: float = 3e-4\n"
    (tmp_path / "config.py").write_text(config)
    edit = change_that_works(script, None, [], "lr", 3e-4, 3e-3, 4)
    assert str(edit) == "config.py:4: lr: float = 3e-4 → lr: float = 3e-3"
    assert (tmp_path / "config.py").read_text() == config
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.py", "train.py"]


def test_a_script_like_nanogpt_with_a_config_that_it_executes(train: WriteScript, tmp_path: Path) -> None:
    script = train(
        "import sys, torch\nlearning_rate = 3e-4\nexec(open(sys.argv[1]).read())\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)\n"
        f"optimizer.param_groups[0]['lr'] = learning_rate * 1 / 101\n{STEP}"
    )
    (tmp_path / "small.py").write_text("learning_rate = 3e-4\n")
    unedited = [{"lr": 3e-4 / 101, "weight_decay": 0.01}]
    edit = change_that_works(script, None, [str(tmp_path / "small.py")], "lr", 3e-4, 3e-3, 5, unedited=unedited)
    assert str(edit) == "small.py:1: learning_rate = 3e-4 → learning_rate = 3e-3"


def test_a_module_of_a_package_and_a_name_that_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("BASE = dict(lr=3e-4)\n")
    script = package / "train.py"
    script.write_text(
        "import torch\nfrom .settings import BASE\nlearning_rate = 3e-4\nmodel = torch.nn.Linear(3, 1)\n"
        f"optimizer = torch.optim.AdamW(model.parameters(), **BASE)\n{STEP}"
    )
    monkeypatch.chdir(tmp_path)
    assert candidates(script, [])[0] == "package/train.py:3: learning_rate = 3e-4 → learning_rate = 3e-3"
    edit = change_that_works(script, "package.train", [], "lr", 3e-4, 3e-3, 5)
    assert str(edit) == "package/settings.py:1: lr=3e-4 → lr=3e-3"


@pytest.fixture
def port() -> Iterator[int]:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def test_a_run_does_no_harm(train: WriteScript, tmp_path: Path, port: int) -> None:
    (tmp_path / "precious.txt").write_text("kept")
    script = train(f"""
import ctypes, multiprocessing, os, pathlib, shutil, socket, sqlite3, subprocess, sys, tempfile, torch

if __name__ == "__main__":
    os.chdir({str(tmp_path)!r})
    harms = [
        lambda: open("new.txt", "w"),
        lambda: open("precious.txt", "r+"),
        lambda: pathlib.Path("precious.txt").write_text("gone"),
        lambda: os.open("new.txt", os.O_CREAT | os.O_RDONLY),
        lambda: os.remove("precious.txt"),
        lambda: os.rename("precious.txt", "new.txt"),
        lambda: os.rename("precious.txt", tempfile.mktemp()),
        lambda: os.symlink("precious.txt", "new.txt"),
        lambda: os.truncate("precious.txt", 0),
        lambda: os.mkdir("new"),
        lambda: shutil.rmtree({str(tmp_path)!r}),
        lambda: sqlite3.connect("new.txt"),
        lambda: torch.save(torch.ones(1), "new.txt"),
        lambda: subprocess.run(["touch", "new.txt"]),
        lambda: os.system("touch new.txt"),
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
        lambda: socket.create_connection(("127.0.0.1", {port})),
    ]
    for index, harm in enumerate(harms):
        try:
            harm()
        except PermissionError:
            continue
        sys.exit(f"nothing refused harm {{index}}")
    libc = ctypes.CDLL(None)
    if sys.platform == "linux" and libc.syscall(444, None, ctypes.c_size_t(0), 1) > 0:  # Landlock sees what Python does not
        assert libc.open(b"new.txt", os.O_CREAT | os.O_WRONLY, 0o600) == -1
    assert open("precious.txt").read() == "kept"
    with tempfile.TemporaryDirectory() as folder, open(folder + "/mine.txt", "w") as file:
        print("allowed", file=file)
    os.makedirs({str(tmp_path)!r}, exist_ok=True)
    print("allowed", file=open(os.devnull, "w"))
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=4, num_workers=1)
    model(next(iter(batches))).sum().backward()
    optimizer.step()
""")
    groups = groups_at_first_step(script, None, [], "lr", 60)
    assert groups is not None
    assert (groups[0]["lr"], groups[0]["momentum"]) == (0.1, 0.9)
    assert (tmp_path / "precious.txt").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious.txt", "train.py"]


def test_a_script_that_makes_its_checkpoint_folder_first_is_not_run_on(train: WriteScript, tmp_path: Path) -> None:
    script = train(
        f"import os, torch\nlr = 3e-4\nos.makedirs({str(tmp_path / 'out')!r}, exist_ok=True)\nmodel = torch.nn.Linear(3, 1)\n"
        f"optimizer = torch.optim.AdamW(model.parameters(), lr=lr)\n{STEP}"
    )
    assert candidates(script, []) == ["train.py:2: lr = 3e-4 → lr = 3e-3"]
    assert change_that_works(script, None, [], "lr", 3e-4, 3e-3) is None
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()  # with the folder of an earlier run it goes on
    assert change_that_works(script, None, [], "lr", 3e-4, 3e-3) is not None
    assert list((tmp_path / "out").iterdir()) == []


def test_a_script_that_never_steps_ends_with_its_time(train: WriteScript) -> None:
    script = train("lr = 3e-4\nimport time\ntime.sleep(60)\n")
    began = time.monotonic()
    assert change_that_works(script, None, [], "lr", 3e-4, 3e-3, seconds=1.5) is None
    assert time.monotonic() - began < 20


def test_a_script_that_crashes_proves_nothing(train: WriteScript) -> None:
    assert change_that_works(train("lr = 3e-4\nraise SystemExit(0)\n"), None, [], "lr", 3e-4, 3e-3) is None


def test_three_candidates_are_tried_at_most(train: WriteScript, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Edit] = []
    monkeypatch.setattr(edits, "verify_edit", lambda *arguments: tried.append(arguments[3]))
    assert change_that_works(train("lr = 0.1\n" * 5), None, [], "lr", 0.1, 1.0) is None
    assert [edit.where for edit in tried] == ["train.py:1", "train.py:2", "train.py:3"]
