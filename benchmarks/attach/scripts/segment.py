"""Segmentation of discs and squares by a small U-Net; the outlines are labelled 255 and ignored."""

import argparse
import logging
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

IGNORE = 255


class ShapesDataset(Dataset):
    def __init__(self, n, size=16, seed=0):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        s = self.size
        yy, xx = torch.meshgrid(torch.arange(s), torch.arange(s), indexing="ij")
        image, mask = 0.15 * torch.randn(1, s, s, generator=g), torch.zeros(s, s, dtype=torch.long)
        for kind in (1, 2):
            cy, cx = torch.randint(3, s - 3, (2,), generator=g).tolist()
            distance = (
                (yy - cy).float().hypot((xx - cx).float()) if kind == 1 else torch.maximum((yy - cy).abs(), (xx - cx).abs())
            )
            mask[distance <= 3.5] = IGNORE
            mask[distance <= 2.5] = kind
            image[0, distance <= 3] = 1.0 if kind == 1 else -1.0
        return {"image": image, "mask": mask}


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=8):
        super().__init__()
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, width)
        self.down1 = DoubleConv(width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, kernel_size=2, stride=2)
        self.conv1 = DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x = self.conv1(torch.cat([x1, self.up1(x2)], dim=1))
        return self.outc(x)


@torch.inference_mode()
def evaluate(net, dataloader):
    net.eval()
    inter, union = torch.zeros(net.n_classes), torch.zeros(net.n_classes)
    for batch in dataloader:
        pred, true = net(batch["image"]).argmax(dim=1), batch["mask"]
        valid = true != IGNORE
        for c in range(net.n_classes):
            inter[c] += ((pred == c) & (true == c) & valid).sum()
            union[c] += (((pred == c) | (true == c)) & valid).sum()
    net.train()
    return (inter / union.clamp(min=1)).mean().item()


def train_model(model, args):
    train_loader = DataLoader(ShapesDataset(800), shuffle=True, batch_size=args.batch_size)
    val_loader = DataLoader(ShapesDataset(100, seed=10_000), batch_size=50)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.9)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
    global_step = 0
    while global_step < args.steps:
        model.train()
        for batch in train_loader:
            masks_pred = model(batch["image"])
            loss = criterion(masks_pred, batch["mask"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            global_step += 1
            if global_step % 20 == 0 or global_step == 1:
                logging.info(f"step {global_step} loss {loss.item():.4f}")
            if global_step >= args.steps:
                break
        logging.info(f"mean IoU {evaluate(model, val_loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the UNet on images and target masks")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", "-b", type=int, default=16)
    parser.add_argument("--learning-rate", "-l", type=float, default=1e-4, dest="lr")
    parser.add_argument("--checkpoint-dir", type=Path, default=None)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    torch.manual_seed(0)
    model = UNet(n_channels=1, n_classes=3)
    train_model(model, args)
    folder = args.checkpoint_dir or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "checkpoint.pth")
