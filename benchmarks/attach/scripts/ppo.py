"""PPO in one file, on a small vector environment (find the target on a grid)."""

import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=320, help="optimiser steps")
    parser.add_argument("--learning-rate", type=float, default=2.5e-3)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=32)
    parser.add_argument("--anneal-lr", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=2)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    args = parser.parse_args()
    args.batch_size = args.num_envs * args.num_steps
    args.minibatch_size = args.batch_size // args.num_minibatches
    return args


class GridVectorEnv:
    """Agent and target on a 5x5 grid; actions are up, down, left, right; +1 at the target, -0.05 for each move."""

    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def __init__(self, num_envs, seed):
        self.num_envs, self.rng = num_envs, np.random.default_rng(seed)
        self.agent = self.rng.integers(0, 5, (num_envs, 2))
        self.target = self.rng.integers(0, 5, (num_envs, 2))
        self.elapsed = np.zeros(num_envs, dtype=int)
        self.returns = np.zeros(num_envs)

    def observe(self):
        return np.concatenate([self.agent, self.target], axis=1).astype(np.float32) / 2.0 - 1.0

    def step(self, actions):
        self.agent = np.clip(self.agent + self.moves[actions], 0, 4)
        self.elapsed += 1
        found = (self.agent == self.target).all(axis=1)
        reward = np.where(found, 1.0, -0.05)
        self.returns += reward
        done = found | (self.elapsed >= 20)
        finished = self.returns[done].tolist()
        k = int(done.sum())
        self.agent[done], self.target[done] = self.rng.integers(0, 5, (k, 2)), self.rng.integers(0, 5, (k, 2))
        self.elapsed[done], self.returns[done] = 0, 0.0
        return self.observe(), reward, done, finished


def linear(d_in, d_out, gain=2**0.5):
    layer = nn.Linear(d_in, d_out)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def tanh_net(d_in, hidden, d_out, gain):
    return nn.Sequential(linear(d_in, hidden), nn.Tanh(), linear(hidden, hidden), nn.Tanh(), linear(hidden, d_out, gain))


class Agent(nn.Module):
    def __init__(self, obs_dim=4, n_actions=4, hidden=48):
        super().__init__()
        self.critic = tanh_net(obs_dim, hidden, 1, gain=1.0)
        self.actor = tanh_net(obs_dim, hidden, n_actions, gain=0.01)

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == "__main__":
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    envs = GridVectorEnv(args.num_envs, args.seed)
    agent = Agent()
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    obs = torch.zeros((args.num_steps, args.num_envs, 4))
    actions = torch.zeros((args.num_steps, args.num_envs), dtype=torch.long)
    logprobs = torch.zeros((args.num_steps, args.num_envs))
    rewards = torch.zeros((args.num_steps, args.num_envs))
    dones = torch.zeros((args.num_steps, args.num_envs))
    values = torch.zeros((args.num_steps, args.num_envs))

    global_step, opt_step, start_time = 0, 0, time.time()
    next_obs = torch.tensor(envs.observe())
    next_done = torch.zeros(args.num_envs)
    num_updates = max(1, args.steps // (args.update_epochs * args.num_minibatches))

    for update in range(1, num_updates + 1):
        if args.anneal_lr:
            frac = 1.0 - (update - 1.0) / num_updates
            optimizer.param_groups[0]["lr"] = frac * args.learning_rate

        episodic = []
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            next_obs, reward, done, finished = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.tensor(next_obs), torch.tensor(done, dtype=torch.float32)
            episodic += finished

        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            after = torch.cat([values[1:], next_value])
            alive = 1.0 - torch.cat([dones[1:], next_done[None]])
            errors = rewards + args.gamma * alive * after - values
            advantages, tail = torch.zeros_like(rewards), torch.zeros(args.num_envs)
            for t in range(args.num_steps - 1, -1, -1):
                tail = errors[t] + args.gamma * args.gae_lambda * alive[t] * tail
                advantages[t] = tail
            returns = advantages + values

        b_obs, b_actions, b_logprobs = obs.reshape(-1, 4), actions.reshape(-1), logprobs.reshape(-1)
        b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)

        b_inds = np.arange(args.batch_size)
        for _epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb_inds = b_inds[start : start + args.minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
                ratio = (newlogprob - b_logprobs[mb_inds]).exp()
                adv = b_advantages[mb_inds]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = -torch.minimum(adv * ratio, adv * clipped).mean()
                v_loss = 0.5 * (newvalue.squeeze(-1) - b_returns[mb_inds]).square().mean()
                loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * entropy.mean()

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
                opt_step += 1

        if update % 4 == 0 or update == 1:
            sps = int(global_step / (time.time() - start_time))
            print(
                f"global_step={global_step}, episodic_return={np.mean(episodic):.3f}, "
                f"value_loss={v_loss.item():.4f}, policy_loss={pg_loss.item():.4f}, SPS={sps}"
            )
