"""Made-up measurements: two programs, fresh processes of both, interleaved in rounds.

All noise is in the logarithm of the latency. Arrays are float64[pairs, processes, rounds], one for
the candidate and one for the baseline; a number stands for the median of a block.
"""

from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sides = tuple[Array, Array]

PROCESSES, ROUNDS = 10, 10
# Standard deviation of a block's median.
BLOCK_SD = 0.01
# The usual spread from process to process, as measured for one stack on 2 virtual CPUs.
PROCESS_SD = 0.012
TWO_SPEEDS = 0.03


@attrs.frozen(kw_only=True)
class Noise:
    """What disturbs a pair of equal programs.

    Attributes:
      process_sd: from process to process.
      process: noise of processes, float64[2, pairs, processes], given its shape.
      rounds: noise of rounds, float64[2, pairs, processes, rounds], given its shape.
      side_sd: of what all processes of a side share.
    """

    process_sd: float = PROCESS_SD
    process: Callable[[np.random.Generator, tuple[int, ...]], Array] | None = None
    rounds: Callable[[np.random.Generator, tuple[int, ...]], Array] | None = None
    side_sd: float = 0.0

    def sides(self, random: np.random.Generator, pairs: int) -> Sides:
        """Returns the measurements of so many pairs of equals."""
        shape = (2, pairs, PROCESSES, ROUNDS)
        logs: Array = BLOCK_SD * random.standard_normal(shape)
        make = self.process or normal
        logs += (self.process_sd * make(random, shape[:3]))[..., None]
        logs += self.side_sd * random.standard_normal((2, pairs, 1, 1))
        if self.rounds is not None:
            logs += self.rounds(random, shape)
        return logs[0], logs[1]


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns Student's t of 3 degrees of freedom, scaled to a variance of 1."""
    values: Array = random.standard_t(3, shape) / np.sqrt(3)
    return values


def two_speeds(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise of which half the processes are slower by 3 %, in units of `PROCESS_SD`."""
    slow = random.random(shape) < 0.5
    values: Array = random.standard_normal(shape) + TWO_SPEEDS / PROCESS_SD * slow
    return values


def two_tight_speeds(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns the same with next to no other noise between processes."""
    values: Array = 0.1 * random.standard_normal(shape)
    return values + TWO_SPEEDS / PROCESS_SD * (random.random(shape) < 0.5)


def drift(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns a random walk that both sides sample in turns, in a shuffled order.

    The machine moves by 0.5 % from block to block, and by 3 % between replicates.
    """
    _, pairs, processes, rounds = shape
    steps = 0.005 * random.standard_normal((pairs, processes, rounds, 2))
    steps[:, :, 0, 0] += 0.03 * random.standard_normal((pairs, processes))
    walk = steps.reshape(pairs, -1).cumsum(axis=1).reshape(steps.shape)
    swap = random.random((pairs, processes, rounds)) < 0.5
    return np.stack(
        [np.where(swap, walk[..., 1], walk[..., 0]), np.where(swap, walk[..., 0], walk[..., 1])]
    )


def neighbours(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns slow minutes of the machine: 3 % that all processes of a replicate share."""
    _, pairs, processes, _ = shape
    values: Array = 0.03 * random.standard_normal((1, pairs, processes, 1))
    return values


def spikes(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns blocks of which a fifth are slower by 20 %."""
    values: Array = 0.2 * (random.random(shape) < 0.2)
    return values


def correlated(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns AR(1) noise of coefficient 0.6 and sd 2 % along the rounds of a process."""
    values = random.standard_normal(shape)
    values[..., 1:] *= np.sqrt(1 - 0.6**2)
    for index in range(1, shape[-1]):
        values[..., index] += 0.6 * values[..., index - 1]
    series: Array = 0.02 * values
    return series


KINDS: Mapping[str, Noise] = {
    "independent": Noise(),
    "shared by a replicate": Noise(rounds=neighbours),
    "drift in a replicate": Noise(rounds=drift),
    "spikes": Noise(rounds=spikes),
    "autocorrelated": Noise(rounds=correlated),
    "heavy tails (t3), sd 2 %": Noise(process_sd=0.02, process=heavy),
    "two speeds, tight": Noise(process=two_tight_speeds),
    "two speeds": Noise(process=two_speeds),
}
# What a compiler chose once, and the cache of the first process hands on to the others.
COMPILED = {
    f"{sd:.1%} between compiles": Noise(process_sd=0.005, side_sd=sd) for sd in (0.005, 0.01, 0.02)
}
