import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class ShapesDataset(Dataset):
    """Noisy 10x10 pictures of a horizontal bar, a vertical bar, a cross or a square; each is made when it is asked for."""

    def __init__(self, size, seed):
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        kind = index % 4
        row, col = torch.randint(2, 8, (2,), generator=g).tolist()
        image = torch.zeros(1, 10, 10)
        if kind in (0, 2):
            image[:, row, col - 2 : col + 3] = 1.0
        if kind in (1, 2):
            image[:, row - 2 : row + 3, col] = 1.0
        if kind == 3:
            image[:, row - 1 : row + 2, col - 1 : col + 2] = 1.0
        return image + 0.2 * torch.randn(1, 10, 10, generator=g), kind


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--num_workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(
        ShapesDataset(2000, seed=1),
        batch_size=32,
        shuffle=True,
        num_workers=args.num_workers,
        multiprocessing_context="spawn" if args.num_workers else None,
        persistent_workers=args.num_workers > 0,
    )
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)

    step = 0
    running_loss = 0.0
    for epoch in range(100):  # loop over the dataset multiple times
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            step += 1
            if step % 20 == 0:
                print(f"[{epoch + 1}, {step:5d}] loss: {running_loss / 20:.3f}")
                running_loss = 0.0
            if step >= args.steps:
                break
        if step >= args.steps:
            break
    print("Finished Training")
