import numpy as np
import pytest
from scipy import stats

from haystack_adv_retrieval.evaluation.bootstrap import compare, mean_interval


def test_the_interval_agrees_with_scipy():
    random = np.random.default_rng(3)
    scores, baseline = random.beta(4, 2, size=120), random.beta(3, 2, size=120)
    ours = compare(scores, baseline)
    theirs = stats.bootstrap(
        (scores - baseline,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert ours.difference == pytest.approx((scores - baseline).mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.002)


def test_pairing_shows_a_small_difference_that_means_hide():
    baseline = np.random.default_rng(0).uniform(size=50)
    assert compare(baseline + 0.01, baseline).verdict == "better"
    assert compare(baseline - 0.01, baseline).verdict == "worse"


def test_noise_is_no_difference():
    random = np.random.default_rng(1)
    result = compare(random.uniform(size=40), random.uniform(size=40))
    assert result.low < 0 < result.high
    assert result.verdict == "no difference at this size"


def test_wins_losses_and_ties_are_counted():
    result = compare([1, 1, 0, 0.5, float("nan")], [0, 0, 1, 0.5, 1])
    assert (result.wins, result.losses, result.ties) == (2, 1, 1)
    assert result.difference == 0.25


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_a_handful_of_questions_proves_nothing(number):
    assert compare([1.0] * number, [0.0] * number).verdict == "no difference at this size"


def test_a_few_wins_among_many_ties_prove_nothing():
    assert compare([1.0] * 5 + [0.0] * 95, [0.0] * 100).verdict == "no difference at this size"


def test_false_alarms_are_about_as_rare_as_promised():
    random = np.random.default_rng(7)
    trials = [compare(*random.binomial(1, 0.5, size=(2, 60)), resamples=1000).verdict for _ in range(200)]
    assert trials.count("no difference at this size") >= 180


def test_the_same_input_gives_the_same_interval_whatever_the_batches():
    values = np.random.default_rng(0).uniform(size=30)
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval(values, seed=1) != mean_interval(values)


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="same length, got 2 and 1"):
        compare([1, 2], [1])
