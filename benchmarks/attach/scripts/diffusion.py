"""Denoising diffusion on two-dimensional points: predict the noise that was added."""

import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_swiss_roll


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        emb = t[:, None].float() * freqs[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=64, time_dim=32):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(time_dim), nn.Linear(time_dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.inp = nn.Linear(2, dim)
        self.layers = nn.ModuleList([nn.Sequential(nn.GELU(), nn.Linear(dim, dim)) for _ in range(3)])
        self.out = nn.Linear(dim, 2)

    def forward(self, x, t):
        h = self.inp(x) + self.time_mlp(t)
        for layer in self.layers:
            h = h + layer(h)
        return self.out(h)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=50):
        super().__init__()
        self.model = model
        self.num_timesteps = timesteps
        betas = torch.linspace(1e-3, 0.2, timesteps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.register_buffer("betas", betas)
        self.register_buffer("sqrt_alphas_cumprod", alphas_cumprod.sqrt())
        self.register_buffer("sqrt_one_minus_alphas_cumprod", (1.0 - alphas_cumprod).sqrt())

    def q_sample(self, x_start, t, noise):
        return self.sqrt_alphas_cumprod[t, None] * x_start + self.sqrt_one_minus_alphas_cumprod[t, None] * noise

    def forward(self, x_start):
        t = torch.randint(0, self.num_timesteps, (x_start.shape[0],), device=x_start.device)
        noise = torch.randn_like(x_start)
        x = self.q_sample(x_start, t, noise)
        return F.mse_loss(self.model(x, t), noise)

    @torch.inference_mode()
    def sample(self, n):
        x = torch.randn(n, 2)
        for i in reversed(range(self.num_timesteps)):
            beta = self.betas[i]
            eps = self.model(x, torch.full((n,), i))
            x = (x - beta / self.sqrt_one_minus_alphas_cumprod[i] * eps) / (1 - beta).sqrt()
            if i > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--train_batch_size", type=int, default=64)
    parser.add_argument("--train_lr", type=float, default=2e-3)
    parser.add_argument("--results_folder", default=None)
    args = parser.parse_args()
    torch.manual_seed(10)

    roll, _ = make_swiss_roll(4000, noise=0.3, random_state=0)
    data = torch.tensor(roll[:, [0, 2]], dtype=torch.float32)
    data = (data - data.mean(0)) / data.std(0)

    diffusion = GaussianDiffusion(Denoiser())
    opt = torch.optim.Adam(diffusion.parameters(), lr=args.train_lr, betas=(0.9, 0.99))
    total = 0.0
    for step in range(1, args.steps + 1):
        batch = data[torch.randint(len(data), (args.train_batch_size,))]
        loss = diffusion(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        total += loss.item()
        if step % 25 == 0:
            print(f"step {step} loss: {total / 25:.4f}")
            total = 0.0
    results = args.results_folder or tempfile.mkdtemp()
    os.makedirs(results, exist_ok=True)
    torch.save(diffusion.sample(256), os.path.join(results, f"sample-{args.steps}.pt"))


if __name__ == "__main__":
    main()
