"""Is the difference between two strategies real, or an accident of these questions? A paired bootstrap answers."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Comparison(NamedTuple):
    """
    A strategy against a baseline on the same questions.

    :param difference: Mean of the paired differences; positive where the strategy scores higher.
    :param low: Lower end of the confidence interval of the difference.
    :param high: Upper end of the confidence interval of the difference.
    :param wins: Questions on which the strategy scores higher.
    :param losses: Questions on which it scores lower.
    :param ties: Questions on which both score the same.
    :param verdict: "better" or "worse" if the interval excludes zero, else "no difference at this size".
    """

    difference: float
    low: float
    high: float
    wins: int
    losses: int
    ties: int
    verdict: str


def compare(
    scores: Sequence[float],
    baseline: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """
    Compare two strategies by a paired bootstrap over the questions (Efron's percentile interval).

    :param scores: One score per question; higher is better. NaN where there is none: the pair is left out.
    :param baseline: The baseline's scores of the same questions, in the same order.
    :param confidence: The share of resamples that the interval covers, in (0, 1).
    :param resamples: How often the questions are drawn anew, with replacement.
    :param seed: Seed of the draws; the same input gives the same interval.
    :returns: The comparison.
    :raises ValueError: If the two differ in length.
    """
    if len(scores) != len(baseline):
        raise ValueError(f"scores and baseline must have the same length, got {len(scores)} and {len(baseline)}")
    differences = np.asarray(scores, dtype=float) - np.asarray(baseline, dtype=float)
    differences = differences[~np.isnan(differences)]
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = mean_interval(differences, confidence=confidence, resamples=resamples, seed=seed)
    # Of a handful of questions that differ the bootstrap is too sure: all won by chance has the odds 2 ** (1 - n).
    enough = 2 ** (1 - wins - losses) < 1 - confidence
    return Comparison(
        difference=float(differences.mean()) if len(differences) else 0.0,
        low=low,
        high=high,
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        verdict="better" if enough and low > 0 else "worse" if enough and high < 0 else "no difference at this size",
    )


def mean_interval(
    values: Sequence[float] | np.ndarray, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """
    Compute a bootstrap confidence interval of a mean.

    :param values: The values; from fewer than two nothing can be said.
    :param confidence: The share of resamples that the interval covers, in (0, 1).
    :param resamples: How often the values are drawn anew, with replacement.
    :param seed: Seed of the draws.
    :returns: The ends of the interval; infinite if there are fewer than two values.
    """
    if len(values) < 2:
        return float("-inf"), float("inf")
    means = _draws(len(values), resamples, seed) @ np.asarray(values, dtype=np.float32) / len(values)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@lru_cache(maxsize=2)
def _draws(number: int, resamples: int, seed: int) -> np.ndarray:
    """Count how often each value is drawn in each resample; the same for all metrics, so it is kept."""
    random = np.random.default_rng(seed)
    return random.multinomial(number, np.full(number, 1 / number), size=resamples).astype(np.float32)
