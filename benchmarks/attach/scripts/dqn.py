"""Deep Q-learning with a replay memory and a target network, on a ring of cells with one rewarding cell."""

import argparse
import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class Ring:
    """Actions: stay, left, right. The cell of the prize is part of the state; an episode ends at the prize."""

    def __init__(self, cells=9):
        self.cells = cells

    def reset(self):
        self.at, self.prize = random.randrange(self.cells), random.randrange(self.cells)
        return self.state()

    def state(self):
        a = 2 * math.pi * self.at / self.cells
        p = 2 * math.pi * self.prize / self.cells
        return torch.tensor([[math.cos(a), math.sin(a), math.cos(p), math.sin(p), math.sin(p - a), math.cos(p - a)]])

    def step(self, action):
        self.at = (self.at + (0, -1, 1)[action]) % self.cells
        done = self.at == self.prize
        return None if done else self.state(), 1.0 if done else -0.1


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 48)
        self.layer2 = nn.Linear(48, 48)
        self.layer3 = nn.Linear(48, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()
random.seed(0)
torch.manual_seed(0)

BATCH_SIZE, GAMMA, TAU, LR = 64, 0.9, 0.02, 2e-3
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.1, 150

env = Ring()
policy_net, target_net = DQN(6, 3), DQN(6, 3)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(5000)


def select_action(state, steps_done):
    epsilon = EPS_END + (EPS_START - EPS_END) * math.exp(-steps_done / EPS_DECAY)
    if random.random() > epsilon:
        with torch.no_grad():
            return policy_net(state).argmax(1, keepdim=True)
    return torch.tensor([[random.randrange(3)]])


def optimize_model():
    sampled = memory.sample(BATCH_SIZE)
    goes_on = torch.tensor([t.next_state is not None for t in sampled])
    q = policy_net(torch.cat([t.state for t in sampled])).gather(1, torch.cat([t.action for t in sampled])).squeeze(1)
    with torch.no_grad():
        target = torch.cat([t.reward for t in sampled])
        target[goes_on] += GAMMA * target_net(torch.cat([t.next_state for t in sampled if t.next_state is not None])).amax(1)
    loss = nn.SmoothL1Loss()(q, target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


opt_steps, episodes, durations = 0, 0, deque(maxlen=20)
while opt_steps < args.steps:
    state = env.reset()
    for t in range(1, 31):
        action = select_action(state, opt_steps)
        next_state, reward = env.step(action.item())
        memory.push(state, action, next_state, torch.tensor([reward]))
        state = next_state
        if len(memory) >= 2 * BATCH_SIZE and opt_steps < args.steps:
            loss = optimize_model()
            opt_steps += 1
            with torch.no_grad():
                for slow, fast in zip(target_net.parameters(), policy_net.parameters(), strict=True):
                    slow.lerp_(fast, TAU)
            if opt_steps % 25 == 0 or opt_steps == 1:
                mean_duration = sum(durations) / max(1, len(durations))
                print(f"step {opt_steps} episode {episodes} duration {mean_duration:.1f} loss {loss:.4f}")
        if state is None:
            break
    durations.append(t)
    episodes += 1
print("Complete")
