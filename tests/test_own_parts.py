"""Parts of your own: ``module:Class`` on the command line, in a study's workers and in `eureka.patch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

import eureka
from eureka import registry
from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.registry import FIXES
from eureka.attention.softmax import Softmax
from eureka.config import RunConfig
from eureka.errors import RequestError, UnknownNameError
from eureka.models.registry import MODELS
from eureka.study.plan import Study, run_name
from eureka.study.ray_pool import NodeWorker
from eureka.tasks.registry import TASKS

MODULE = '''
from typing import Annotated
from pydantic import Field
from torch import nn
from eureka.attention.operator import SoftmaxFamily
from eureka.tasks.tiles import Tiles


class Sharp(SoftmaxFamily):
    """A fix."""

    def __init__(self, head_dim: int, *, factor: Annotated[float, Field(gt=0)] = 2.0) -> None:
        super().__init__()
        self.factor = factor / head_dim**0.5

    def beta(self, q, k, mask):
        return self.factor


class Leaking(Sharp):
    def forward(self, q, k, v, mask=None, dropout=0.0):
        return super().forward(q, k, v.detach(), mask, dropout)


class Untyped(Sharp):
    def __init__(self, *, factor=2.0) -> None:
        super().__init__(4)


class Named(Sharp):
    def __init__(self, *, name: str = "x") -> None:
        super().__init__(4)


class Half(SoftmaxFamily):
    pass


class FewTiles(Tiles):
    def __init__(self, *, noise: float = 0.5) -> None:
        super().__init__(tokens=1, noise=noise)


class Flat(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 8) -> None:
        super().__init__()
        size = input_shape[0] * input_shape[1]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, inputs):
        return self.layers(inputs)


def function():
    pass
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of somebody's own, from which the command is run."""
    (tmp_path / "my_parts.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "my_needy.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_parts", "my_broken", "my_needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    tiny = ["training.steps=8", "training.warmup=2", "training.batch_size=8", "training.validation_samples=16", "model.dim=16"]
    sets = [word for change in tiny for word in ("--set", change)] if words[0] in ("run", "compare") else []
    return subprocess.run(
        [Path(sys.executable).parent / "eureka", *words, *sets],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


class Sharp(SoftmaxFamily):
    """A fix that is given as a class."""

    def __init__(self, head_dim: int, *, factor: Annotated[float, Field(gt=0)] = 2.0) -> None:
        super().__init__()
        self.factor: float = factor / head_dim**0.5

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return self.factor


@pytest.mark.usefixtures("folder")
def test_a_class_of_the_users_folder_is_a_fix_with_settings_that_are_checked() -> None:
    operator: Any = FIXES.build("my_parts:Sharp", {"factor": "3"}, head_dim=9)
    assert operator.factor == 1.0
    with pytest.raises(RequestError, match=r"^fix 'my_parts:Sharp': factor = -1 should be greater than 0\.$"):
        FIXES.choose("my_parts:Sharp", {"factor": -1})
    with pytest.raises(UnknownNameError, match=r"unknown setting of fix 'my_parts:Sharp' 'factr'; did you mean 'factor'\?"):
        FIXES.choose("my_parts:Sharp", {"factr": 1})


WRONG = {
    "my_prats:Sharp": r"unknown module in .* or among the installed packages 'my_prats'; did you mean 'my_parts'\?",
    "my_parts:Shrap": r"unknown class in .*my_parts\.py 'Shrap'; did you mean 'Sharp'\?",
    "my_parts:function": r"fix 'my_parts:function' is a function, not a class; name a subclass of eureka\.attention\.operator",
    "my_parts:FewTiles": r"fix 'my_parts:FewTiles' is a class, but not a subclass of eureka\.attention\.operator\.Operator\.",
    "my_parts:Half": r"fix 'my_parts:Half' does not define beta\.",
    "my_parts:Untyped": r"fix 'my_parts:Untyped': its setting 'factor' has no type; annotate it\.",
    "my_parts:Named": r"fix 'my_parts:Named': a setting cannot be called 'name'",
    "my_parts:": r"fix 'my_parts:': expected module:Class, as in my_package\.my_module:MyClass\.",
    "../my_parts:Sharp": r"fix '\.\./my_parts:Sharp': expected module:Class",
    "my_broken:Sharp": r"fix 'my_broken:Sharp': importing my_broken failed with RuntimeError: not today\.",
    "my_needy:Sharp": r"fix 'my_needy:Sharp': my_needy imports 'a_package_that_nobody_has', which is not installed\.",
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_name_is_one_sentence(name: str) -> None:
    with pytest.raises(RequestError, match=WRONG[name]):
        FIXES.choose(name)


def test_a_task_and_a_model_of_ones_own_make_a_run(folder: Path, tiny: RunConfig) -> None:
    config = tiny.but(
        {"task.name": "my_parts:FewTiles", "task.noise": 0.25, "model.name": "my_parts:Flat", "attention.name": "softmax"}
    )
    assert config.to_json()["task"] == {"name": "my_parts:FewTiles", "noise": 0.25}
    assert TASKS.entry("my_parts:FewTiles").foreign
    assert MODELS.entry("my_parts:Flat").foreign
    assert eureka.run(config, folder / "run").outcome.status
    assert RunConfig.from_json(json.loads((folder / "run" / "config.json").read_text())) == config


def test_the_name_of_a_run_folder_has_no_colon(folder: Path, tiny: RunConfig) -> None:
    assert run_name(tiny.but({"attention.name": "my_parts:Sharp"})).startswith("my_parts.Sharp-lr")


def test_a_comparison_with_a_fix_of_ones_own_reaches_its_workers(folder: Path) -> None:
    done = command("compare", "tiles", "--fix", "softmax,my_parts:Sharp", "--seeds", "1", "--out", "study", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["fix"] for row in json.loads(done.stdout)["rows"]] == ["softmax", "my_parts:Sharp"]
    assert len(list((folder / "study").glob("my_parts.Sharp-lr*/result.json"))) == 1


@pytest.mark.parametrize(
    "words", [("run", "tiles", "--set", "attention.name=my_parts:Leaking"), ("compare", "tiles", "--fix", "my_parts:Leaking")]
)
def test_a_fix_that_breaks_the_contract_is_refused_before_a_run_starts(folder: Path, words: tuple[str, ...]) -> None:
    done = command(*words, "--out", "study", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "eureka: Leaking lets no gradient reach v (mask: NoMask).\n")
    assert not list((folder / "study").glob("*/*"))


def test_workers_are_told_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry.user_folder() == str(tmp_path)
    monkeypatch.setenv(registry.FOLDER, "/elsewhere")
    assert registry.user_folder() == "/elsewhere"


def test_a_node_of_a_cluster_looks_in_the_users_folder(
    folder: Path, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    study = Study(folder / "study", [tiny.but({"attention.name": "my_parts:Sharp"})])
    (run,) = study.prepare()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(folder)])
    monkeypatch.delitem(sys.modules, "my_parts")
    monkeypatch.setenv(registry.FOLDER, "")  # to be put back at the end
    node = NodeWorker(str(folder))
    assert node.carry_out(str(run.path)) is None
    node.end()
    assert run.result() is not None


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("fix", [Sharp, "my_parts:Sharp", Sharp(8, factor=3.0)], ids=["class", "name", "instance"])
def test_a_model_can_be_patched_with_ones_own_operator(fix: Any) -> None:
    layer = nn.TransformerEncoderLayer(16, nhead=2, batch_first=True, dropout=0.0)
    inputs = torch.randn(2, 5, 16)
    plain = layer(inputs)
    with eureka.patch(layer, fix, settings=None if isinstance(fix, Sharp) else {"factor": 3.0}):
        assert not torch.allclose(layer(inputs), plain)
    torch.testing.assert_close(layer(inputs), plain)


def test_a_class_that_is_no_operator_cannot_be_patched_in() -> None:
    layer = nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
    with pytest.raises(RequestError, match=r"is a class, but not a subclass of eureka\.attention\.operator\.Operator\."):
        eureka.patch(layer, nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"unknown setting of fix 'eureka.attention.softmax:Softmax' 'factor'"):
        eureka.patch(layer, Softmax, settings={"factor": 2})


def offered(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Pretend that packages offer these fixes, as ``name="module:Class"``; ``name__2`` is a second one of the same name."""
    found = [EntryPoint(name.partition("__")[0], target, FIXES.group) for name, target in points.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == FIXES.group else [])


@pytest.mark.usefixtures("folder")
def test_a_listing_imports_no_package_and_a_chosen_name_does(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, sharp="my_parts:Sharp", broken="my_broken:Sharp")
    assert FIXES.names()[-2:] == ["broken", "sharp"]
    assert "my_parts" not in sys.modules
    assert FIXES.choose("sharp").values() == {"name": "sharp", "factor": 2.0}
    with pytest.raises(RequestError, match=r"^fix 'broken': importing my_broken failed with RuntimeError: not today\.$"):
        FIXES.choose("broken")


@pytest.mark.usefixtures("folder")
def test_a_name_that_is_taken_is_never_silently_another_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, softmax="my_parts:Sharp", twice="my_parts:Sharp", twice__2="my_parts:Leaking")
    assert isinstance(FIXES.build("softmax"), Softmax)
    assert FIXES.names()[-3:] == ["my_parts:Sharp", "my_parts:Sharp", "my_parts:Leaking"]
    with pytest.raises(UnknownNameError, match="unknown fix 'twice'"):
        FIXES.choose("twice")
