"""Image classification with Accelerate: gradient accumulation, clipping, evaluation after each epoch."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


class DigitsNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(128, num_classes)

    def forward(self, pixel_values):
        return self.classifier(self.features(pixel_values).flatten(1))


def get_dataloaders(accelerator: Accelerator, batch_size: int):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    with accelerator.main_process_first():
        perm = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train_dataset = TensorDataset(images[perm[300:]], labels[perm[300:]])
    eval_dataset = TensorDataset(images[perm[:300]], labels[perm[:300]])
    train_dataloader = DataLoader(train_dataset, shuffle=True, batch_size=batch_size, drop_last=True)
    eval_dataloader = DataLoader(eval_dataset, shuffle=False, batch_size=64)
    return train_dataloader, eval_dataloader


def training_function(config, args):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(config["seed"])
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, config["batch_size"])
    model = DigitsNet()
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=config["lr"])
    lr_scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))

    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    criterion = nn.CrossEntropyLoss()

    completed_steps = 0
    epoch = 0
    while completed_steps < args.steps:
        model.train()
        for pixel_values, labels in train_dataloader:
            with accelerator.accumulate(model):
                outputs = model(pixel_values)
                loss = criterion(outputs, labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config["max_grad_norm"])
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                completed_steps += 1
                if completed_steps % 25 == 0:
                    accelerator.print(f"step {completed_steps}: loss {loss.item():.4f}")
            if completed_steps >= args.steps:
                break

        model.eval()
        correct = total = 0
        for pixel_values, labels in eval_dataloader:
            with torch.no_grad():
                outputs = model(pixel_values)
            predictions, references = accelerator.gather_for_metrics((outputs.argmax(dim=-1), labels))
            correct += (predictions == references).sum().item()
            total += len(references)
        accelerator.print(f"epoch {epoch}: accuracy {100 * correct / total:.2f}")
        epoch += 1
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--steps", type=int, default=250, help="optimiser steps")
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    args = parser.parse_args()
    config = {"lr": 3e-3, "seed": 42, "batch_size": 32, "max_grad_norm": 1.0}
    training_function(config, args)


if __name__ == "__main__":
    main()
