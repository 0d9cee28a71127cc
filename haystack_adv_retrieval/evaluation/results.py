"""What came out of an evaluation: scores per question, and what can be said about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from typing import Any

import numpy as np

from haystack_adv_retrieval.evaluation.bootstrap import Comparison, compare, mean_interval
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.strategies import Answer
from haystack_adv_retrieval.evaluation.trace import Trace


@dataclass(frozen=True)
class Outcome:
    """
    One strategy's answer to one question.

    :param answer: The context and the reply; empty after an error.
    :param scores: The metrics by name.
    :param seconds: How long it took.
    :param trace: What the pipeline's components and models cost.
    :param error: Why there is no answer, or None.
    """

    answer: Answer
    scores: dict[str, float]
    seconds: float
    trace: Trace
    error: str | None = None

    @property
    def context_length(self) -> int:
        """The number of characters that a model would read."""
        return sum(len(document.content or "") for document in self.answer.documents)


@dataclass(frozen=True)
class Evaluation:
    """
    Strategies side by side on the same questions.

    :param questions: The labelled questions.
    :param outcomes: For each strategy, its answers in the order of the questions.
    :param baseline: The strategy that the others are compared with.
    :param budgets: Lengths, in characters, at which contexts were cut to measure them.
    :param top_k: The number of results at which contexts were cut to measure them.
    """

    questions: tuple[Question, ...]
    outcomes: Mapping[str, Sequence[Outcome]]
    baseline: str
    budgets: tuple[int, ...]
    top_k: int

    @cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics, as scored for any strategy."""
        return list(dict.fromkeys(name for answers in self.outcomes.values() for one in answers for name in one.scores))

    @property
    def main_metric(self) -> str:
        """The metric by which strategies are ranked unless another is named: recall at the middle budget."""
        return f"recall@{sorted(self.budgets)[len(self.budgets) // 2]}" if self.budgets else f"recall@top{self.top_k}"

    @property
    def groups(self) -> list[str]:
        """The groups of questions, in order of appearance."""
        return list(dict.fromkeys(question.group for question in self.questions if question.group))

    def scores(self, strategy: str, metric: str, group: str | None = None) -> list[float]:
        """
        Collect a metric question by question.

        :param strategy: The strategy's name.
        :param metric: The metric's name.
        :param group: Only questions of this group.
        :returns: One score per question; NaN where there is none.
        """
        return [
            outcome.scores.get(metric, float("nan"))
            for question, outcome in zip(self.questions, self.outcomes[strategy], strict=True)
            if group is None or question.group == group
        ]

    def mean(self, strategy: str, metric: str, group: str | None = None) -> float:
        """
        Average a metric.

        :param strategy: The strategy's name.
        :param metric: The metric's name.
        :param group: Only questions of this group.
        :returns: The mean over the questions that have a score, NaN if none has.
        """
        values = [value for value in self.scores(strategy, metric, group) if not isnan(value)]
        return float(np.mean(values)) if values else float("nan")

    def interval(self, strategy: str, metric: str) -> tuple[float, float]:
        """
        Compute the 95 % confidence interval of a mean.

        :param strategy: The strategy's name.
        :param metric: The metric's name.
        :returns: Its ends.
        """
        return mean_interval([value for value in self.scores(strategy, metric) if not isnan(value)])

    def comparison(self, strategy: str, metric: str, group: str | None = None) -> Comparison:
        """
        Compare a strategy with the baseline.

        The confidence is 95 % for all strategies together (Bonferroni): the more are tried, the more likely one of them
        looks better by accident.

        :param strategy: The strategy's name.
        :param metric: The metric's name.
        :param group: Only questions of this group.
        :returns: The difference with its confidence interval, and the verdict.
        """
        ours, baseline = self.scores(strategy, metric, group), self.scores(self.baseline, metric, group)
        return compare(ours, baseline, confidence=1 - 0.05 / max(1, len(self.outcomes) - 1))

    def ranking(self, metric: str | None = None) -> list[str]:
        """
        Order the strategies.

        :param metric: The metric's name; by default `main_metric`.
        :returns: Their names, best mean first.
        """
        return sorted(self.outcomes, key=lambda name: -np.nan_to_num(self.mean(name, metric or self.main_metric)))

    def latency(self, strategy: str) -> dict[str, tuple[float, float]]:
        """
        Summarise the time that answers took.

        :param strategy: The strategy's name.
        :returns: Median and 95th percentile in seconds: of `total` and of each component of the pipeline.
        """
        answers = self.outcomes[strategy]
        times = {"total": [outcome.seconds for outcome in answers]}
        for outcome in answers:
            for name, seconds in outcome.trace.components.items():
                times.setdefault(name, []).append(seconds)
        return {name: _percentiles(seconds) for name, seconds in times.items()}

    def summary(self, metric: str | None = None) -> str:
        """
        Say in one sentence which strategy wins and whether the difference is real.

        :param metric: The metric's name; by default `main_metric`.
        :returns: The sentence.
        """
        metric = metric or self.main_metric
        theirs = f"{self.mean(self.baseline, metric):.3f}"
        best = next((name for name in self.ranking(metric) if name != self.baseline), None)
        if best is None:
            return f"{self.baseline}: {metric} {theirs} on {len(self.questions)} questions."
        result = self.comparison(best, metric)
        verdict = f"{best} is {result.verdict} than {self.baseline}"
        if result.verdict not in ("better", "worse"):
            verdict = f"Between {best} and {self.baseline} there is {result.verdict}"
        return (
            f"{verdict}: {metric} {self.mean(best, metric):.3f} against {theirs}, difference "
            f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f}), {len(self.questions)} questions."
        )

    def to_dict(self) -> dict[str, Any]:
        """
        Convert to plain values for JSON.

        :returns: The means, comparisons and costs of every strategy. A number that is not known is None.
        """
        return {
            "questions": len(self.questions),
            "drafted_questions": sum(question.drafted for question in self.questions),
            "baseline": self.baseline,
            "budgets": list(self.budgets),
            "top_k": self.top_k,
            "main_metric": self.main_metric,
            "ranking": self.ranking(),
            "strategies": {name: self._strategy(name) for name in self.outcomes},
        }

    def _strategy(self, name: str) -> dict[str, Any]:
        answers = self.outcomes[name]
        return {
            "scores": {metric: _number(self.mean(name, metric)) for metric in self.metrics},
            "against_baseline": {
                metric: {key: _number(value) for key, value in self.comparison(name, metric)._asdict().items()}
                for metric in self.metrics
                if name != self.baseline
            },
            "groups": {
                group: {metric: _number(self.mean(name, metric, group)) for metric in self.metrics}
                for group in self.groups
            },
            "seconds": {part: {"p50": p50, "p95": p95} for part, (p50, p95) in self.latency(name).items()},
            "context_length": float(np.mean([outcome.context_length for outcome in answers])),
            "llm_calls": float(np.mean([outcome.trace.llm_calls for outcome in answers])),
            "prompt_tokens": float(np.mean([outcome.trace.prompt_tokens for outcome in answers])),
            "completion_tokens": float(np.mean([outcome.trace.completion_tokens for outcome in answers])),
            "errors": [outcome.error for outcome in answers if outcome.error],
        }


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    p50, p95 = np.percentile(seconds, [50, 95])
    return float(p50), float(p95)


def _number(value: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    return None if isinstance(value, float) and not isfinite(value) else value
