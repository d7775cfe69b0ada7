"""A folder between the protocols: `_train` and `_eval`, two optimizers, a replay buffer."""

import random

import torch

from ...util.model import BenchmarkModel
from torchbenchmark.tasks import REINFORCEMENT_LEARNING
from torchbenchmark.util.distribution import SquashedNormal


class Agent:
    def __init__(self, device):
        self.actor = torch.nn.Linear(4, 2).to(device)
        self.critic = torch.nn.Linear(5, 1).to(device)


class Model(BenchmarkModel):
    task = REINFORCEMENT_LEARNING.OTHER_RL
    DEFAULT_TRAIN_BSIZE = 8
    DEFAULT_EVAL_BSIZE = 8
    ALLOW_CUSTOMIZE_BSIZE = False

    def __init__(self, test, device, jit=False, batch_size=None, extra_args=[]):
        if jit:
            raise NotImplementedError("no JIT")
        super().__init__(
            test=test, device=device, jit=jit, batch_size=batch_size, extra_args=extra_args
        )
        self.agent = Agent(device)
        self.buffer = [[random.gauss(0, 1) for _ in range(4)] for _ in range(32)]
        self.actor_optimizer = torch.optim.Adam(self.agent.actor.parameters(), lr=1e-2)
        self.critic_optimizer = torch.optim.Adam(self.agent.critic.parameters(), lr=1e-2)
        self.steps = 0

    def _sample(self):
        return torch.tensor(random.sample(self.buffer, self.batch_size)).to(self.device)

    def _act(self, state):
        mean, spread = self.agent.actor(state).chunk(2, dim=-1)
        return SquashedNormal(mean, spread.exp()).rsample()

    def get_module(self):
        self.buffer.append([0.5] * 4)
        return self.agent.actor, (self._sample(),)

    def _train(self, niter=1):
        for _ in range(niter):
            state = self._sample()
            value = self.agent.critic(torch.cat([state, self._act(state)], -1))
            self.actor_optimizer.zero_grad()
            self.critic_optimizer.zero_grad()
            (value - 1.0).square().mean().backward()
            self.actor_optimizer.step()
            self.critic_optimizer.step()
            self.steps += 1
            self.buffer.append([float(self.steps)] * 4)

    def _eval(self, niter=1):
        for _ in range(niter):
            action = self._act(self._sample())
        return (action,)
