"""The RAG triad, judged by a chat model: is the context relevant, is the reply grounded in it, does it answer?"""

from collections.abc import Sequence
from typing import Any

from haystack.components.evaluators import ContextRelevanceEvaluator, FaithfulnessEvaluator, LLMEvaluator
from haystack.components.generators.chat.types import ChatGenerator

from haystack_adv_retrieval.evaluation.strategies import Answer

TRIAD = ("context_relevance", "groundedness", "answer_relevance")

_ANSWERS: dict[str, Any] = {
    "instructions": (
        "Judge whether the reply answers the question, regardless of whether it is true. The score is 1 if it answers "
        "all of the question, 0.5 if it answers a part of it or buries the answer in other matters, and 0 if it does "
        "not answer it or declines to."
    ),
    "inputs": [("questions", list[str]), ("predicted_answers", list[str])],
    "outputs": ["score"],
    "examples": [
        {
            "inputs": {"questions": "How long is the notice period?", "predicted_answers": "It is three months."},
            "outputs": {"score": 1},
        },
        {
            "inputs": {"questions": "How long is the notice period?", "predicted_answers": "The text does not say."},
            "outputs": {"score": 0},
        },
    ],
}


class Judge:
    """
    Scores answers by a chat model, through Haystack's evaluators.

    ```python
    judge = Judge(OpenAIChatGenerator(generation_kwargs={"response_format": {"type": "json_object"}}))
    evaluate(strategies, questions, judge=judge)
    ```
    """

    def __init__(self, chat_generator: ChatGenerator) -> None:
        """
        Set up the evaluators.

        :param chat_generator: The model that judges; it should be told to write JSON.
        """
        options: dict[str, Any] = {
            "chat_generator": chat_generator,
            "raise_on_failure": False,
            "progress_bar": False,
        }
        self._context_relevance = ContextRelevanceEvaluator(**options)
        self._groundedness = FaithfulnessEvaluator(**options)
        self._answer_relevance = LLMEvaluator(**_ANSWERS, **options)

    def score(self, questions: Sequence[str], answers: Sequence[Answer]) -> list[dict[str, float]]:
        """
        Judge one strategy's answers.

        :param questions: The questions.
        :param answers: The answers to them, in the same order.
        :returns: For each answer its `context_relevance` and, if it has a reply, `groundedness` and `answer_relevance`.
            A verdict that can't be read is left out.
        """
        scores: list[dict[str, float]] = [{} for _ in answers]
        contexts = [[document.content or "" for document in answer.documents] for answer in answers]
        relevance = self._context_relevance.run(questions=list(questions), contexts=contexts)
        _add(TRIAD[0], scores, relevance["individual_scores"])
        replied = [number for number, answer in enumerate(answers) if answer.reply is not None]
        if replied:
            asked = [questions[number] for number in replied]
            replies = [answers[number].reply for number in replied]
            shown = [contexts[number] for number in replied]
            chosen = [scores[number] for number in replied]
            grounded = self._groundedness.run(questions=asked, contexts=shown, predicted_answers=replies)
            _add(TRIAD[1], chosen, grounded["individual_scores"])
            answered = self._answer_relevance.run(questions=asked, predicted_answers=replies)
            _add(TRIAD[2], chosen, [verdict and verdict["score"] for verdict in answered["results"]])
        return scores


def _add(metric: str, scores: Sequence[dict[str, float]], values: Sequence[Any]) -> None:
    for one, value in zip(scores, values, strict=True):
        if isinstance(value, int | float) and 0 <= value <= 1:
            one[metric] = float(value)
