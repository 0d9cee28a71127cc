"""Search for the best settings, and measure them on questions that the search has not seen."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haystack import Pipeline

from haystack_adv_retrieval.evaluation.evaluate import BUDGETS, evaluate
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.results import Evaluation
from haystack_adv_retrieval.evaluation.strategies import Strategy

Settings = dict[str, Any]
DEFAULT, CHOSEN = "default", "chosen"


@dataclass(frozen=True)
class Trial:
    """
    Settings that were tried.

    :param settings: The settings; empty for the default ones.
    :param score: Their mean on the tuning questions; NaN if they are not valid.
    :param error: Why they are not valid.
    """

    settings: Settings
    score: float
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """
    The outcome of a search.

    :param metric: The metric that was maximised.
    :param trials: Every settings tried, best first.
    :param tuning: The questions that the trials were scored on.
    :param held_out: The default settings and the chosen ones on the other questions. Only this score is honest: the
        best of many trials is partly luck.
    """

    metric: str
    trials: list[Trial]
    tuning: list[Question]
    held_out: Evaluation

    @property
    def best(self) -> Trial:
        """The chosen trial."""
        return self.trials[0]


def sweep(
    build: Callable[[Settings], Pipeline | Strategy],
    space: Mapping[str, Sequence[Any]],
    questions: Sequence[Question],
    *,
    metric: str | None = None,
    trials: int | None = None,
    held_out: float = 0.5,
    seed: int = 0,
    budgets: Sequence[int] = BUDGETS,
    top_k: int = 5,
    advance: Callable[[Trial], object] = lambda _: None,
) -> Sweep:
    """
    Try settings on a part of the questions, and compare the best with the default on the rest.

    ```python
    space = {"expander.window_size": [1, 2, 3], "retriever.top_k": [10, 30]}
    result = sweep(lambda settings: load_pipeline("window", overrides=settings), space, questions)
    print(result.best.settings, result.held_out.summary())
    ```

    :param build: Makes a strategy of settings. A ValueError means that these do not go together; they are skipped.
    :param space: The values to try of every setting.
    :param questions: The labelled questions.
    :param metric: What to maximise; by default recall at the middle budget.
    :param trials: How many settings to draw at random; None tries all combinations.
    :param held_out: The share of the questions, in (0, 1), that is kept out of the search.
    :param seed: Seed of the split and of the draws.
    :param budgets: As for `evaluate`.
    :param top_k: As for `evaluate`.
    :param advance: Called after each trial.
    :returns: The trials, and the comparison on the questions that were held out.
    :raises ValueError: If `space` names no values, if a part of the questions is empty or if the metric is unknown.
    """
    tuning, rest = split(questions, held_out, seed)
    found: list[Trial] = []
    # The default comes first, so that of equals it is preferred.
    for settings in [{}, *combinations(space, trials, seed)]:
        try:
            strategy = build(settings)
        except ValueError as error:
            found.append(Trial(settings, float("nan"), str(error)))
        else:
            result = evaluate({DEFAULT: strategy}, tuning, budgets=budgets, top_k=top_k)
            metric = metric or result.main_metric
            if metric not in result.metrics:
                raise ValueError(f"metric must be one of {result.metrics}, got {metric!r}")
            found.append(Trial(settings, result.mean(DEFAULT, metric)))
        advance(found[-1])
    found.sort(key=lambda trial: -math.inf if math.isnan(trial.score) else trial.score, reverse=True)
    strategies = {DEFAULT: build({})} | ({CHOSEN: build(found[0].settings)} if found[0].settings else {})
    return Sweep(str(metric), found, tuning, evaluate(strategies, rest, budgets=budgets, top_k=top_k))


def combinations(space: Mapping[str, Sequence[Any]], trials: int | None = None, seed: int = 0) -> list[Settings]:
    """
    List settings to try.

    :param space: The values of every setting.
    :param trials: How many to draw at random, none twice; None, or more than there are, means all.
    :param seed: Seed of the draws.
    :returns: The settings.
    :raises ValueError: If a setting has no values.
    """
    if not space or not all(space.values()):
        raise ValueError(f"space must name values for every setting, got {dict(space)}")
    size = math.prod(map(len, space.values()))
    places = range(size) if trials is None or trials >= size else random.Random(seed).sample(range(size), trials)
    return [_settings(space, place) for place in places]


def split(questions: Sequence[Question], held_out: float, seed: int = 0) -> tuple[list[Question], list[Question]]:
    """
    Divide questions at random, each group in the same proportion.

    :param questions: The questions.
    :param held_out: The share of the second part, in (0, 1).
    :param seed: Seed of the draws.
    :returns: The two parts, each in the order of the questions.
    :raises ValueError: If a part would be empty.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must be in (0, 1), got {held_out}")
    shuffled = list(range(len(questions)))
    random.Random(seed).shuffle(shuffled)
    shuffled.sort(key=lambda number: questions[number].group or "")
    # Every question whose step crosses a whole number: evenly spread, so over the groups too.
    chosen = {number for place, number in enumerate(shuffled) if int((place + 1) * held_out) > int(place * held_out)}
    parts = (
        [question for number, question in enumerate(questions) if number not in chosen],
        [question for number, question in enumerate(questions) if number in chosen],
    )
    if not all(parts):
        raise ValueError(f"held_out must leave questions in both parts, got {held_out} of {len(questions)} questions")
    return parts


def _settings(space: Mapping[str, Sequence[Any]], place: int) -> Settings:
    """Read off a combination by its number, as digits of a mixed base: the last setting changes fastest."""
    settings = dict.fromkeys(space)
    for name in reversed(settings):
        place, digit = divmod(place, len(space[name]))
        settings[name] = space[name][digit]
    return settings
