"""A vision transformer on digits: 2x2 patches, a class token, learned positions."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=8, dropout=0.0):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        q, k, v = self.to_qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dots = q @ k.mT * self.scale
        attn = self.dropout(self.attend(dots))
        return self.to_out((attn @ v).transpose(1, 2).flatten(2))


class ViT(nn.Module):
    def __init__(self, image_size=8, patch_size=2, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=64, dropout=0.0):
        super().__init__()
        num_patches = (image_size // patch_size) ** 2
        self.unfold = nn.Unfold(patch_size, stride=patch_size)
        self.to_patch_embedding = nn.Linear(patch_size**2, dim)
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.02)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            [nn.ModuleList([Attention(dim, heads, dropout=dropout), FeedForward(dim, mlp_dim, dropout)]) for _ in range(depth)]
        )
        self.norm = nn.LayerNorm(dim)
        self.mlp_head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.to_patch_embedding(self.unfold(img).transpose(1, 2))
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.dropout(x + self.pos_embedding)
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.mlp_head(self.norm(x)[:, 0])


def main(args):
    torch.manual_seed(args.seed)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    images = (images - 0.305) / 0.376
    labels = torch.tensor(data.target)
    train_x, train_y, val_x, val_y = images[:1440], labels[:1440], images[1440:], labels[1440:]

    model = ViT(dropout=args.dropout)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    warmup = 20
    lr_lambda = lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(1.0, s / args.steps))))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)

    step = 0
    while step < args.steps:
        model.train()
        for idx in torch.randperm(len(train_x)).split(args.batch_size):
            optimizer.zero_grad()
            loss = criterion(model(train_x[idx]), train_y[idx])
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 25 == 0 or step == 1:
                print(f"step {step} - loss : {loss.item():.4f}")
            if step >= args.steps:
                break
        model.eval()
        with torch.no_grad():
            out = model(val_x)
            print(
                f"val_loss : {criterion(out, val_y).item():.4f} - val_acc: {(out.argmax(dim=1) == val_y).float().mean().item():.4f}"
            )
    folder = Path(args.output or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "vit.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default=None)
    main(parser.parse_args())
