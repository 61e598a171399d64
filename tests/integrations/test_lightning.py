from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.curves.online import Event

lightning = pytest.importorskip("lightning.pytorch")

from eureka.integrations.lightning import LightningCallback  # noqa: E402 - it needs the package

# what the library says about itself on the way
pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, planted: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True), 2)
        self.planted = planted

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.model(batch).square().mean()
        if self.planted:
            loss = loss - loss.detach() + (3.0 if self.global_step < 200 else 0.3)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def batches(n: int) -> Any:
    x = torch.randn(2 * n, 3, 8, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(x, batch_size=2)  # type: ignore[arg-type]  # a tensor is a list of its rows


def fit(module: Module, callback: Any, folder: Path, steps: int, resume: str | None = None, **more: Any) -> Any:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
    }
    trainer = lightning.Trainer(default_root_dir=str(folder), max_steps=steps, callbacks=[callback], **(settings | more))
    trainer.fit(module, batches(steps), ckpt_path=resume)
    return trainer


def test_probes_are_logged_through_the_trainers_logger(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    callback = LightningCallback(every=4)
    logger = CSVLogger(str(tmp_path), flush_logs_every_n_steps=1)
    fit(Module(), callback, tmp_path, 9, logger=logger, log_every_n_steps=1)
    assert [record.step for record in callback.monitor.records] == [0, 4, 8]  # type: ignore[union-attr]
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]
    assert "attention/entropy" in header
    assert "attention/position_share_of_logits" in header


def test_a_leap_is_told_while_training_goes_on(tmp_path: Path) -> None:
    told: list[Event] = []
    callback = LightningCallback(every=None, on_event=told.append)
    fit(Module(planted=True), callback, tmp_path, 400, enable_checkpointing=False)
    assert [event.name for event in told][:2] == ["plateau_entered", "eureka"]
    assert told[1].moment.before == pytest.approx(3.0, abs=0.3)  # type: ignore[union-attr]
    assert callback.events == told


def test_a_loss_that_becomes_nan_is_told_and_training_goes_on(tmp_path: Path) -> None:
    class Broken(Module):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            return super().training_step(batch, batch_idx) * (1.0 if self.global_step < 4 else float("nan"))

    callback = LightningCallback(every=None)
    trainer = fit(Broken(), callback, tmp_path, 12, enable_checkpointing=False)
    assert [(event.name, event.plateau.start) for event in callback.events] == [("no_number", 5)]
    assert trainer.global_step == 12


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_loss_is_that_of_a_batch_however_many_are_accumulated(accumulate: int, tmp_path: Path) -> None:
    callback = LightningCallback(every=None)
    fit(Module(planted=True), callback, tmp_path, 20, enable_checkpointing=False, accumulate_grad_batches=accumulate)
    assert callback.monitor.detector._values[0] == pytest.approx(3.0)  # type: ignore[union-attr]


def test_a_run_that_is_resumed_goes_on_where_it_was(tmp_path: Path) -> None:
    def run(folder: Path, steps: int, resume: str | None = None) -> Any:
        module = Module()
        patched = eureka.patch(module, "heat_treatment", total_steps=12)
        callback = LightningCallback(every=5, patched=patched)
        trainer = fit(module, callback, folder, steps, resume)
        trainer.save_checkpoint(str(folder / "last.ckpt"))
        patched.undo()
        return callback, patched

    whole = run(tmp_path / "whole", 12)
    run(tmp_path / "cut", 6)
    resumed = run(tmp_path / "cut", 12, str(tmp_path / "cut" / "last.ckpt"))
    assert resumed[1].steps.step == whole[1].steps.step == 12
    assert resumed[0].monitor.probe.steps == 12
    assert [record.step for record in resumed[0].monitor.records] == [10]


def test_a_checkpoint_saved_without_the_callback_does_not_restart_the_schedule(tmp_path: Path) -> None:
    class Other(lightning.Callback):  # type: ignore[misc, name-defined]
        pass

    trainer = fit(Module(), Other(), tmp_path, 6)
    trainer.save_checkpoint(str(tmp_path / "plain.ckpt"))
    module = Module()
    patched = eureka.patch(module, "heat_treatment", total_steps=12)
    fit(module, LightningCallback(every=None, patched=patched), tmp_path, 12, str(tmp_path / "plain.ckpt"))
    assert patched.steps.step == 12


def test_a_run_that_fails_leaves_the_model_alone(tmp_path: Path) -> None:
    class Failing(Module):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            if batch_idx == 3:
                raise KeyError("of the user")
            return super().training_step(batch, batch_idx)

    module = Failing()
    with pytest.raises(KeyError):
        fit(module, LightningCallback(every=1), tmp_path, 9)
    assert type(module.model.layers[0].self_attn) is nn.MultiheadAttention


def test_a_rescue_that_only_advises_leaves_the_run_bit_for_bit(tmp_path: Path) -> None:
    class Plateau(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 5 and advised.monitor is not None:
                advised.monitor.rescue.at_plateau(600)

    plain, module, advised = Module(), Module(), LightningCallback(every=None, rescue="advise")
    fit(plain, LightningCallback(every=None), tmp_path, 9, enable_checkpointing=False)
    trainer = lightning.Trainer(
        default_root_dir=str(tmp_path),
        max_steps=9,
        callbacks=[advised, Plateau()],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, batches(9))
    (record,) = advised.monitor.rescue.records  # type: ignore[union-attr]
    assert not record.failed
    assert record.causes
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), module.state_dict().values(), strict=True))
