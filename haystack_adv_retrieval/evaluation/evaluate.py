"""Ask every strategy the same questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from haystack import Document, Pipeline, logging

from haystack_adv_retrieval.evaluation.judge import Judge
from haystack_adv_retrieval.evaluation.metrics import (
    cut,
    first_relevant,
    ndcg_of_first,
    reciprocal_rank,
    source_scores,
    span_scores,
)
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.results import Evaluation, Outcome
from haystack_adv_retrieval.evaluation.strategies import Answer, Strategy, passage, pipeline_strategy
from haystack_adv_retrieval.evaluation.trace import traced

logger = logging.getLogger(__name__)

BUDGETS = (500, 1000, 2000, 4000, 8000)


def evaluate(
    strategies: Mapping[str, Pipeline | Strategy],
    questions: Sequence[Question],
    *,
    baseline: str | None = None,
    budgets: Sequence[int] = BUDGETS,
    top_k: int = 5,
    judge: Judge | None = None,
    advance: Callable[[], object] = lambda: None,
) -> Evaluation:
    """
    Ask every strategy the same questions and score what they retrieve.

    The strategies take turns at each question, so that a slow moment of the machine hits all of them. A strategy that
    raises scores zero on that question, and the error is kept.

    ```python
    evaluation = evaluate({"baseline": baseline, "windows": load_pipeline("sentence_window")}, questions)
    print(evaluation.comparison("windows", "recall@2000").verdict)
    ```

    :param strategies: The strategies by name. Pipelines are warmed up first.
    :param questions: The labelled questions.
    :param baseline: The name of the strategy that the others are compared with; by default the first.
    :param budgets: Lengths, in characters, at which the context is cut to measure it.
    :param top_k: The number of results after which the context is cut to measure it.
    :param judge: Also scores contexts and replies by a chat model.
    :param advance: Called after each answer, to show progress: `len(strategies) * len(questions)` times.
    :returns: What was retrieved, and its scores.
    :raises ValueError: If there are no strategies or no questions, or if a number is not positive.
    """
    if not strategies or not questions:
        raise ValueError(f"give at least one strategy and one question, got {len(strategies)} and {len(questions)}")
    baseline = next(iter(strategies)) if baseline is None else baseline
    if baseline not in strategies:
        raise ValueError(f"baseline must be one of {list(strategies)}, got {baseline!r}")
    if min(top_k, *budgets) < 1:
        raise ValueError(f"top_k and budgets must be positive, got {top_k} and {tuple(budgets)}")
    asks: dict[str, Strategy] = {}
    for name, strategy in strategies.items():
        if isinstance(strategy, Pipeline):
            strategy.warm_up()
        asks[name] = pipeline_strategy(strategy) if isinstance(strategy, Pipeline) else strategy
    outcomes: dict[str, list[Outcome]] = {name: [] for name in asks}
    for question in questions:
        for name, ask in asks.items():
            outcomes[name].append(_outcome(name, ask, question, budgets, top_k))
            advance()
    if judge:
        asked = [question.text for question in questions]
        for name, given in outcomes.items():
            verdicts = judge.score(asked, [one.answer for one in given])
            outcomes[name] = [
                replace(one, scores=one.scores | extra) for one, extra in zip(given, verdicts, strict=True)
            ]
    return Evaluation(tuple(questions), outcomes, baseline, tuple(budgets), top_k)


def score(
    question: Question, documents: Sequence[Document], budgets: Sequence[int] = BUDGETS, top_k: int = 5
) -> dict[str, float]:
    """
    Score what was retrieved for one question.

    :param question: The question with its gold.
    :param documents: The results, best first.
    :param budgets: Lengths, in characters, at which the context is cut.
    :param top_k: The number of results after which the context is cut.
    :returns: `recall@2000`, `precision@2000`, `iou@2000` for every budget, the same and `hit` at `top5` (for a `top_k`
        of 5), `mrr` and `ndcg`.
    """
    passages = [passage(document) for document in documents]
    cuts = {str(budget): cut(passages, budget) for budget in budgets} | {f"top{top_k}": passages[:top_k]}
    matches = {
        place: span_scores(question.spans, shown) if question.spans else source_scores(question.sources, shown)
        for place, shown in cuts.items()
    }
    rank = first_relevant(question.spans, question.sources, passages)
    return {
        **{f"recall@{place}": match.recall for place, match in matches.items()},
        f"hit@top{top_k}": float(rank is not None and rank <= top_k),
        "mrr": reciprocal_rank(rank),
        "ndcg": ndcg_of_first(rank),
        **{f"precision@{place}": match.precision for place, match in matches.items()},
        **{f"iou@{place}": match.iou for place, match in matches.items()},
    }


def _outcome(name: str, ask: Strategy, question: Question, budgets: Sequence[int], top_k: int) -> Outcome:
    error = None
    with traced() as trace:
        start = perf_counter()
        try:
            answer = ask(question.text)
        except Exception as exception:
            cause = exception.__cause__ or exception  # a pipeline wraps what a component raised
            error = f"{type(cause).__name__}: {cause}"
            logger.warning(
                "{strategy} failed on {question}: {error}", strategy=name, question=question.text, error=error
            )
            answer = Answer([])
        seconds = perf_counter() - start
    scores = score(question, answer.documents, budgets, top_k)
    return Outcome(answer, scores, seconds, trace, error)
