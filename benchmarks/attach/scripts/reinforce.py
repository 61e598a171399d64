"""REINFORCE on a small corridor: walk to the end that the first observation names."""

import argparse
from itertools import count

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="REINFORCE")
parser.add_argument("--steps", type=int, default=250, metavar="N", help="optimiser steps")
parser.add_argument("--episodes", type=int, default=4, help="episodes per step")
parser.add_argument("--gamma", type=float, default=0.95, metavar="G")
parser.add_argument("--seed", type=int, default=543, metavar="N")
parser.add_argument("--log-interval", type=int, default=20, metavar="N")
args = parser.parse_args()
torch.manual_seed(args.seed)


class Corridor:
    """Positions -3..3, start in the middle; +1 at the goal's end, -1 at the other, a small cost for each move."""

    def reset(self):
        self.position, self.t = 0, 0
        self.goal = 1 if torch.rand(()) < 0.5 else -1
        return self.observe()

    def observe(self):
        return torch.tensor([self.position / 3.0, float(self.goal), self.t / 20.0])

    def step(self, action):
        self.position += 1 if action == 1 else -1
        self.t += 1
        at_end = abs(self.position) == 3
        reward = -0.02
        if at_end:
            reward += 1.0 if self.position * self.goal > 0 else -1.0
        return self.observe(), reward, at_end, self.t >= 20


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(3, 32)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return F.softmax(self.affine2(torch.tanh(self.affine1(x))), dim=-1)


env = Corridor()
policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=5e-3)


def select_action(state):
    choice = Categorical(policy(state.unsqueeze(0)))
    action = choice.sample()
    policy.saved_log_probs.append(choice.log_prob(action))
    return action.item()


def episode_returns():
    to_go, returns = 0.0, []
    while policy.rewards:
        to_go = policy.rewards.pop() + args.gamma * to_go
        returns.append(to_go)
    return returns[::-1]


def main():
    running_reward = -0.2
    for i_step in range(args.steps):
        returns = []
        for _ in range(args.episodes):
            state, ep_reward = env.reset(), 0.0
            for _t in count(1):
                state, reward, terminated, truncated = env.step(select_action(state))
                policy.rewards.append(reward)
                ep_reward += reward
                if terminated or truncated:
                    break
            running_reward = 0.02 * ep_reward + 0.98 * running_reward
            returns += episode_returns()
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        policy_loss = -(torch.cat(policy.saved_log_probs) * returns).mean()
        optimizer.zero_grad()
        policy_loss.backward()
        optimizer.step()
        del policy.saved_log_probs[:]
        if i_step % args.log_interval == 0:
            print(
                f"Step {i_step}\tLoss: {policy_loss.item():.4f}\tLast reward: {ep_reward:.2f}\tAverage reward: {running_reward:.3f}"
            )


if __name__ == "__main__":
    main()
