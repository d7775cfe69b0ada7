"""Simulated measurements: programs, fresh processes of each, interleaved in rounds.

All noise is in the logarithm of the latency. Arrays are float64[programs, races, processes,
rounds]; each number represents the median of a block. Most races are pairs of a candidate and a
baseline.
"""

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sides = tuple[Array, Array]

PROCESSES, ROUNDS = 10, 10
# Standard deviation of a block's median.
BLOCK_SD = 0.01
# The usual spread between processes, as measured for one stack on 2 virtual CPUs.
PROCESS_SD = 0.012
TWO_SPEEDS = 0.03


@attrs.frozen(kw_only=True)
class Noise:
    """Noise in a race of equal programs.

    Attributes:
      process_sd: standard deviation between processes.
      process: returns the noise of processes, float64[programs, races, processes], for a shape.
      rounds: returns the noise of rounds, float64[programs, races, processes, rounds], for a shape.
      side_sd: standard deviation of the noise that all processes of a side share.
    """

    process_sd: float = PROCESS_SD
    process: Callable[[np.random.Generator, tuple[int, ...]], Array] | None = None
    rounds: Callable[[np.random.Generator, tuple[int, ...]], Array] | None = None
    side_sd: float = 0.0

    def sides(self, random: np.random.Generator, pairs: int) -> Sides:
        """Returns the measurements of pairs of equal programs."""
        candidate, baseline = self.races(random, pairs, 2)
        return candidate, baseline

    def races(self, random: np.random.Generator, races: int, programs: int) -> Array:
        """Returns the measurements of races of equal programs, float64[programs, races, ...]."""
        shape = (programs, races, PROCESSES, ROUNDS)
        logs: Array = BLOCK_SD * random.standard_normal(shape)
        make = self.process or normal
        logs += (self.process_sd * make(random, shape[:3]))[..., None]
        logs += self.side_sd * random.standard_normal((programs, races, 1, 1))
        if self.rounds is not None:
            logs += self.rounds(random, shape)
        return logs


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns Student's t with 3 degrees of freedom, scaled to a variance of 1."""
    values: Array = random.standard_t(3, shape) / np.sqrt(3)
    return values


def two_speeds(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise in which half the processes are 3 % slower, in units of `PROCESS_SD`."""
    slow = random.random(shape) < 0.5
    values: Array = random.standard_normal(shape) + TWO_SPEEDS / PROCESS_SD * slow
    return values


def two_tight_speeds(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns the same with almost no other noise between processes."""
    values: Array = 0.1 * random.standard_normal(shape)
    return values + TWO_SPEEDS / PROCESS_SD * (random.random(shape) < 0.5)


def drift(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns a random walk that all programs sample alternately, in a shuffled order.

    The speed of the machine changes by 0.5 % between blocks, and by 3 % between replicates.
    """
    programs, races, processes, rounds = shape
    steps = 0.005 * random.standard_normal((races, processes, rounds, programs))
    steps[:, :, 0, 0] += 0.03 * random.standard_normal((races, processes))
    walk = steps.reshape(races, -1).cumsum(axis=1).reshape(steps.shape)
    order = random.random(walk.shape).argsort(axis=-1)
    values: Array = np.moveaxis(np.take_along_axis(walk, order, axis=-1), -1, 0)
    return values


def neighbours(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns slow phases of the machine: 3 % that all processes of a replicate share."""
    _, pairs, processes, _ = shape
    values: Array = 0.03 * random.standard_normal((1, pairs, processes, 1))
    return values


def positions(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Returns the position of each program in an order, from 0, along the last axis.

    As in `stats.planning`, each program is equally often in every position, in a random order.

    Args:
      random: random number generator.
      shape: shape of the result, the programs first.
    """
    programs, *others, count = shape
    groups = math.ceil(count / programs)
    first = random.random((*others, groups, 1, programs)).argsort(axis=-1)
    turns = (first + np.arange(programs)[:, None]) % programs
    every: NDArray[np.int64] = turns.reshape(*others, groups * programs, programs)
    return np.moveaxis(every[..., :count, :], -1, 0)


def second_starter(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise that makes programs 3 % slower if they do not start first in a replicate."""
    return np.where(positions(random, shape[:3]) > 0, 0.03, 0.0)[..., None]


def second_in_a_round(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise that makes programs 5 % slower if they are not measured first in a round."""
    return np.where(positions(random, shape) > 0, 0.05, 0.0)


def periodic(period: float) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Returns a neighbour that adds 10 % in half of each period, given in blocks."""

    def make(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        phase = random.random((1, *shape[1:3], 1))
        blocks = shape[0] * np.arange(shape[-1]) + positions(random, shape)
        return np.where((blocks / period + phase) % 1 < 0.5, 0.1, 0.0)

    return make


def burst(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise that makes most blocks of one to three replicates 30 % slower."""
    _, pairs, processes, _ = shape
    start = random.integers(0, processes, (pairs, 1))
    length = random.integers(1, 4, (pairs, 1))
    index = np.arange(processes)
    is_hit = (index >= start) & (index < start + length)
    return np.where(is_hit[None, ..., None] & (random.random(shape) < 0.7), 0.3, 0.0)


def resembling(coefficient: float) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Returns noise in which processes resemble the previous one, AR(1) with a variance of 1."""

    def make(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = random.standard_normal(shape)
        values[..., 1:] *= np.sqrt(1 - coefficient**2)
        for index in range(1, shape[-1]):
            values[..., index] += coefficient * values[..., index - 1]
        series: Array = values
        return series

    return make


def slow_processes(
    share: float, by: float
) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Returns little noise in which a share of processes is slower, in units of `PROCESS_SD`."""

    def make(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values: Array = 0.1 * random.standard_normal(shape)
        return values + by / PROCESS_SD * (random.random(shape) < share)

    return make


def spikes(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns noise that makes a fifth of the blocks 20 % slower."""
    return np.where(random.random(shape) < 0.2, 0.2, 0.0)


def correlated(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns AR(1) noise with coefficient 0.6 and sd 2 % along the rounds of a process."""
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
# Speeds of processes, effects of the order, and other programs on the machine.
FURTHER_KINDS: Mapping[str, Noise] = {
    "two speeds 10 % apart": Noise(process=slow_processes(0.5, 0.1)),
    "one process in three 8 % slower": Noise(process=slow_processes(1 / 3, 0.08)),
    "one process in ten 8 % slower": Noise(process=slow_processes(0.1, 0.08)),
    "second starter 3 % slower": Noise(rounds=second_starter),
    "second in a round 5 % slower": Noise(rounds=second_in_a_round),
    "neighbour, 2 blocks": Noise(rounds=periodic(2)),
    "neighbour, 3.3 blocks": Noise(rounds=periodic(3.3)),
    "neighbour, 40 blocks": Noise(rounds=periodic(40)),
    "burst": Noise(rounds=burst),
}
# Processes that resemble the previous one: there are fewer independent processes than the rule
# counts, and no test of a few processes shows it.
OUT_OF_REACH: Mapping[str, Noise] = {
    f"processes resemble the one before, {value}": Noise(process=resembling(value))
    for value in (0.3, 0.5, 0.8)
}
# A random choice of the compiler that all processes of a side share through a cache.
COMPILED = {
    f"{sd:.1%} between compiles": Noise(process_sd=0.005, side_sd=sd) for sd in (0.005, 0.01, 0.02)
}
