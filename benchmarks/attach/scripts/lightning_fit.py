"""A LightningModule for digits, fitted by the Trainer."""

import argparse
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class DigitsDataModule(L.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        digits = load_digits()
        x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
        x = (x - x.mean()) / x.std()
        y = torch.tensor(digits.target)
        dataset = TensorDataset(x, y)
        generator = torch.Generator().manual_seed(42)
        self.train_set, self.val_set = random_split(dataset, [1500, len(dataset) - 1500], generator=generator)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=128)


class LitClassifier(L.LightningModule):
    def __init__(self, hidden_dim=64, learning_rate=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Linear(64, hidden_dim),
            nn.LayerNorm(hidden_dim),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(hidden_dim, hidden_dim),
            nn.GELU(),
        )
        self.head = nn.Linear(hidden_dim, 10)

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        if self.global_step % 25 == 0:
            self.print(f"step {self.global_step} train loss {loss.item():.4f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_acc", (logits.argmax(-1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--root_dir", default=None)
    args = parser.parse_args()

    L.seed_everything(7)
    model = LitClassifier()
    trainer = L.Trainer(
        max_steps=args.steps,
        accelerator="cpu",
        devices=1,
        default_root_dir=args.root_dir or tempfile.mkdtemp(),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        num_sanity_val_steps=2,
    )
    trainer.fit(model, datamodule=DigitsDataModule())
    metrics = trainer.validate(model, datamodule=DigitsDataModule(), verbose=False)[0]
    print(f"val loss {metrics['val_loss']:.4f}, val acc {metrics['val_acc']:.4f}")


if __name__ == "__main__":
    main()
