"""`eureka.diagnose(module, data)`: the module's own training step without its trainer, and a module that is as it was."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import eureka
from eureka.doctor import diagnose, exam
from eureka.doctor.diagnose import CHECKS
from eureka.errors import RequestError
from eureka.forks.settings_code import settings_code
from eureka.forks.setup import hand_over
from tests.doctor.digests import digest

lightning = pytest.importorskip("lightning.pytorch")

# what the library says about itself on the way
pytestmark = pytest.mark.filterwarnings("ignore")

FORMS = ("alone", "list", "two lists", "dict", "list of dicts")


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A step that logs in every way that people know, and asks the trainer things."""

    def __init__(self, form: str = "alone", *, manual: bool = False, optimizers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.count, self.automatic_optimization = form, optimizers, not manual
        self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)
        self.norm = nn.BatchNorm1d(8)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        tokens = batch["tokens"]
        del batch["spare"]
        loss = nn.functional.cross_entropy(self.head(self.norm(self.embed(tokens).mean(dim=1))), tokens[:, 0])
        self.log("loss", loss, prog_bar=True, on_epoch=True)
        self.log_dict({"a": 1.0, "b": loss})
        if self.trainer.logger:
            self.logger.experiment.add_scalar("loss", loss, self.global_step)
        assert self.trainer.current_epoch >= 0
        assert self.trainer.global_step >= 0
        if not self.automatic_optimization:
            self._by_hand(loss)
        return {"loss": loss}

    def _by_hand(self, loss: Tensor) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        optimizer.step()

    def configure_optimizers(self) -> Any:
        made = [torch.optim.AdamW(self.parameters(), lr=1e-2) for _ in range(self.count)]
        self.remembered = made
        scheduler = torch.optim.lr_scheduler.LambdaLR(made[0], lambda step: 1.0)
        forms = {
            "alone": made[0],
            "list": made,
            "two lists": (made, [scheduler]),
            "dict": {"optimizer": made[0], "lr_scheduler": {"scheduler": scheduler, "interval": "step"}},
            "list of dicts": [{"optimizer": one} for one in made],
        }
        return forms[self.form]


ROWS = torch.randint(0, 10, (48, 4), generator=torch.Generator().manual_seed(0))


def loader(shuffle: bool = False) -> DataLoader[Any]:
    return DataLoader([{"tokens": row, "spare": row} for row in ROWS], batch_size=8, shuffle=shuffle)  # type: ignore[arg-type]


class Data(lightning.LightningDataModule):  # type: ignore[misc, name-defined]
    def setup(self, stage: str) -> None:
        self.rows = ROWS

    def train_dataloader(self) -> DataLoader[Any]:
        assert self.rows is ROWS
        return loader()


def fit(module: Any, data: Any, folder: Path, **more: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(default_root_dir=str(folder), accelerator="cpu", **(quiet | {"max_steps": 3} | more))
    trainer.fit(module, data)
    return trainer


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "CHECKS", CHECKS[:2])
    monkeypatch.setattr(exam, "STEPS", 6)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_configure_optimizers_is_taken(form: str) -> None:
    module = Module(form)
    before = digest(module)
    given = hand_over(module, loader())
    assert isinstance(given.optimizer, torch.optim.AdamW)
    assert {id(one) for one in given.optimizer.param_groups[0]["params"]} == {id(one) for one in module.parameters()}
    assert digest(module) == before
    assert not hasattr(module, "remembered")


@pytest.mark.parametrize("data", [loader(shuffle=True), Data()], ids=["loader", "data module"])
def test_a_module_and_its_data_are_bit_equal_after_a_diagnosis(data: Any) -> None:
    module = Module()
    before = digest(module, sorted(vars(data)), ROWS)
    found = eureka.diagnose(module, data)
    assert not [check.skipped for check in found.checks if check.skipped]
    assert found.notes == ("The module has no Trainer yet: neither gradient clipping nor accumulation is assumed.",)
    assert digest(module, sorted(vars(data)), ROWS) == before
    assert module._trainer is None


def test_after_a_fit_the_module_brings_its_data_and_its_optimiser(tmp_path: Path) -> None:
    module, data = Module("dict"), Data()
    trainer = fit(module, data, tmp_path)
    [optimizer] = trainer.optimizers
    before = digest(module, optimizer, trainer.global_step, dict(trainer.callback_metrics))
    found = eureka.diagnose(module)
    assert found.notes == ()
    assert hand_over(module).optimizer is optimizer
    assert digest(module, optimizer, trainer.global_step, dict(trainer.callback_metrics)) == before
    assert module.trainer is trainer


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value", "precision": "bf16-mixed"},
    ],
    ids=["plain", "accumulated and clipped", "by value, in bfloat16"],
)
def test_its_steps_are_those_that_lightning_makes(settings: dict[str, Any], tmp_path: Path) -> None:
    module = Module()
    fit(module, loader(), tmp_path, max_steps=1, **settings)
    given = hand_over(module, loader())
    assert given.step is not None
    model, optimizer = copy.deepcopy((given.model, given.optimizer))
    twin = Module()
    fit(twin, loader(), tmp_path, max_steps=1, **settings)
    twin.__dict__["configure_optimizers"] = lambda: optimizer_of(twin, given.optimizer)
    batches = list(given.batches)[:2]
    flat = [one for batch in batches for one in (batch if isinstance(batch, list) else [batch])]
    for batch in batches:
        given.step(model, optimizer, batch)  # type: ignore[arg-type]
    fit(twin, DataLoader(flat, batch_size=None), tmp_path, max_steps=2, **settings)  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, twin.get_parameter(name)), name


def optimizer_of(module: Any, other: Any) -> torch.optim.Optimizer:
    made = torch.optim.AdamW(module.parameters(), lr=1e-2)
    made.load_state_dict(copy.deepcopy(other.state_dict()))
    return made


def test_a_module_that_optimises_by_hand_is_taken() -> None:
    found = eureka.diagnose(Module(manual=True), loader())
    assert not [check.skipped for check in found.checks if check.skipped]


def test_two_optimisers_are_refused_in_one_sentence() -> None:
    with pytest.raises(RequestError, match="configure_optimizers returns 2 optimizers, and an experiment takes one"):
        eureka.diagnose(Module("list", optimizers=2), loader())


def test_a_module_without_data_is_refused_in_one_sentence() -> None:
    with pytest.raises(RequestError, match="the data of the module is missing"):
        eureka.diagnose(Module())


def test_the_advice_to_decay_less_names_where_a_module_says_its_decay() -> None:
    given = hand_over(Module(), loader())
    code = "for group in optimizer.param_groups: group['weight_decay'] = min(group['weight_decay'], 0.01)"
    assert settings_code(code, given) == "weight_decay = 0.01  # in configure_optimizers"
