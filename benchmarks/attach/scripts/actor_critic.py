"""Advantage actor-critic with an optimiser each for actor and critic: keep a drifting cart near the middle."""

import argparse

import torch
import torch.nn as nn
from torch.distributions import Normal


class DriftingCart:
    """A batch of carts on a line; the action is a push, the reward falls with the distance from the middle."""

    def __init__(self, num_envs, horizon=20):
        self.num_envs, self.horizon = num_envs, horizon

    def reset(self):
        self.x = torch.empty(self.num_envs).uniform_(-1, 1)
        self.v = torch.zeros(self.num_envs)
        return self.obs()

    def obs(self):
        return torch.stack([self.x, self.v], dim=1)

    def step(self, push):
        self.v = 0.8 * self.v + 0.2 * push.clamp(-1, 1) + 0.02 * torch.randn(self.num_envs)
        self.x = (self.x + self.v).clamp(-2, 2)
        return self.obs(), -self.x.abs()


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def forward(self, obs):
        return Normal(self.mu(obs).squeeze(-1), self.log_std.exp())


def mlp(d_in, d_out):
    return nn.Sequential(nn.Linear(d_in, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, d_out))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--entropy-coef", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)

    env = DriftingCart(args.num_envs)
    actor, critic = Actor(), mlp(2, 1)
    actor_optim = torch.optim.Adam(actor.parameters(), lr=5e-3)
    critic_optim = torch.optim.Adam(critic.parameters(), lr=1e-2)

    for update in range(args.steps):
        obs = env.reset()
        log_probs, values, rewards, entropies = [], [], [], []
        for _ in range(env.horizon):
            dist = actor(obs)
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            entropies.append(dist.entropy())
            values.append(critic(obs).squeeze(-1))
            obs, reward = env.step(action)
            rewards.append(reward)

        with torch.no_grad():
            ret = critic(obs).squeeze(-1)
        returns = []
        for reward in reversed(rewards):
            ret = reward + args.gamma * ret
            returns.insert(0, ret)
        returns, values = torch.stack(returns), torch.stack(values)
        advantages = (returns - values).detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)

        actor_loss = -(torch.stack(log_probs) * advantages).mean() - args.entropy_coef * torch.stack(entropies).mean()
        actor_optim.zero_grad()
        actor_loss.backward()
        actor_optim.step()

        critic_loss = nn.functional.mse_loss(values, returns)
        critic_optim.zero_grad()
        critic_loss.backward()
        critic_optim.step()

        if update % 20 == 0 or update == args.steps - 1:
            mean_return = torch.stack(rewards).sum(0).mean().item()
            print(
                f"update {update:4d} actor_loss {actor_loss.item():+.4f} value_loss {critic_loss.item():.4f} return {mean_return:.3f}"
            )


if __name__ == "__main__":
    main()
