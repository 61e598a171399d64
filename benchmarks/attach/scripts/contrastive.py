"""Contrastive pre-training of an encoder on digits (two views of each image, InfoNCE), then a linear probe."""

import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, Dataset


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def augment(self, image):
        dx, dy = torch.randint(-1, 2, (2,)).tolist()
        image = torch.roll(image, (dy, dx), dims=(1, 2))
        image = image * (0.7 + 0.6 * torch.rand(()))
        return image + 0.1 * torch.randn_like(image)

    def __getitem__(self, idx):
        return [self.augment(self.images[idx]) for _ in range(2)]


class Encoder(nn.Module):
    def __init__(self, feature_dim=32, out_dim=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, feature_dim),
        )
        self.projection = nn.Sequential(
            nn.ReLU(), nn.Linear(feature_dim, feature_dim), nn.ReLU(), nn.Linear(feature_dim, out_dim)
        )

    def forward(self, x):
        return self.projection(self.backbone(x))


class ContrastiveTrainer:
    def __init__(self, args, model, optimizer, scheduler):
        self.args, self.model, self.optimizer, self.scheduler = args, model, optimizer, scheduler
        self.criterion = nn.CrossEntropyLoss()

    def info_nce_loss(self, features):
        """Rows are the views; the right column of a row is the other view of the same image."""
        z = F.normalize(features, dim=1)
        n = len(z)
        itself = torch.eye(n, dtype=torch.bool, device=z.device)
        logits = (z @ z.T / self.args.temperature).masked_fill(itself, -1e9)
        partner = (torch.arange(n, device=z.device) + n // 2) % n
        return logits, partner

    def train(self, train_loader):
        n_iter = 0
        while n_iter < self.args.steps:
            for images in train_loader:
                features = self.model(torch.cat(images, dim=0))
                logits, labels = self.info_nce_loss(features)
                loss = self.criterion(logits, labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                if n_iter % 20 == 0:
                    top1 = (logits.argmax(1) == labels).float().mean().item()
                    logging.info(f"iter {n_iter}\tloss: {loss.item():.4f}\ttop1: {100 * top1:.1f}")
                n_iter += 1
                if n_iter >= self.args.steps:
                    return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    loader = DataLoader(TwoViews(images[:1200]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    ContrastiveTrainer(args, model, optimizer, scheduler).train(loader)

    model.eval()
    with torch.no_grad():
        features = model.backbone(images).numpy()
    probe = LogisticRegression(max_iter=300).fit(features[:1200], digits.target[:1200])
    logging.info(f"linear probe accuracy: {probe.score(features[1200:], digits.target[1200:]):.4f}")


if __name__ == "__main__":
    main()
