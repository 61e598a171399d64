"""The commands on the page make the runs again."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from eureka.report.command import again
from eureka.report.groups import group
from eureka.report.reading import read_runs


def commands(folders: list[Path], parse: Any) -> list[list[str]]:
    html = again(group(read_runs(folders)), folders, Path("report.html"))
    text = "".join(parse(html.split("</pre>")[0]).words).replace("\\\n", "")
    return [shlex.split(line) for line in text.splitlines()]


def eureka(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "eureka", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout), done.stderr


def test_the_compare_command_means_exactly_the_runs_of_the_page(real_study: Path, tmp_path: Path, parse: Any) -> None:
    real_study = shutil.copytree(real_study, tmp_path / "study")
    compare, page = commands([real_study], parse)
    assert compare[:3] == ["eureka", "compare", "tiles"]
    assert page == ["eureka", "report", str(real_study), "-o", "report.html"]
    before = sorted(path.name for path in real_study.iterdir() if path.is_dir())
    document, told = eureka(*compare[1:], "--out", str(real_study), "--json")
    assert "4 of 4 runs are finished already." in told
    assert sorted(path.name for path in real_study.iterdir() if path.is_dir()) == before
    assert len(document["rows"]) == 2


def test_runs_that_are_no_grid_are_told_one_by_one(real_study: Path, parse: Any) -> None:
    chosen = sorted(path for path in real_study.iterdir() if path.is_dir())[:3]
    *runs, _ = commands(chosen, parse)
    assert [run[:3] for run in runs] == [["eureka", "run", "tiles"]] * 3
    document, _ = eureka(*runs[0][1:], "--out", str(real_study), "--json")
    assert Path(document["folder"]) == chosen[0]


def test_arms_that_are_grids_of_their_own_are_a_command_each(tmp_path: Path, plant: Any, parse: Any) -> None:
    for scale, fixes in [(1.0, ["softmax", "norm_softmax"]), (10.0, ["softmax"])]:
        for fix, lr, seed in itertools.product(fixes, [1e-4, 1e-3], range(2)):
            changes = {"training.qk_lr_scale": scale, "attention.name": fix, "training.lr": lr, "training.seed": seed}
            plant(tmp_path, changes)
    *compare, _ = sorted(commands([tmp_path], parse), key=lambda words: words[1:])
    fixes = [(words[words.index("--fix") + 1], words[-1]) for words in compare]
    assert fixes == [("softmax", "training.qk_lr_scale=10.0"), ("softmax,norm_softmax", "training.qk_lr_scale=1.0")]
    assert all(words[words.index("--seeds") + 1] == "2" for words in compare)


def test_a_folder_that_holds_just_these_runs_is_named_once(study: Path, parse: Any) -> None:
    runs = sorted(study.iterdir())
    assert commands(runs, parse)[-1] == ["eureka", "report", str(study), "-o", "report.html"]
    assert commands(runs[:2], parse)[-1] == ["eureka", "report", str(runs[0]), str(runs[1]), "-o", "report.html"]
