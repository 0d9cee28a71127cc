"""A chat model as the judge of the candidates of one ranking: what it is shown, what it says, and a record of both."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, TypeVar

from haystack.components.generators.chat.types import ChatGenerator

from haystack_adv_retrieval.calls import Steps
from haystack_adv_retrieval.core.ranking import Group, Judged, completed
from haystack_adv_retrieval.core.replies.grades import expected_grade, read_grade
from haystack_adv_retrieval.core.replies.labels import read_labels
from haystack_adv_retrieval.llm.asking import Reply, ask_many
from haystack_adv_retrieval.llm.prompts import Prompt, quoted

T = TypeVar("T")


@dataclass
class Judge:
    """
    One ranking's judge. Candidates are the positions of their passages.

    :param model: The chat generator, from `helper_model`.
    :param prompt: The template, see `LLMRanker`.
    :param query: The query.
    :param passages: The candidates as they are shown.
    :param deadline: A `time.monotonic()` after which nothing is asked.
    :param max_workers: How many calls run at the same time.
    :param drop_unmentioned: Whether candidates that are shown and never named are left out.
    :param allow_abstain: Whether a reply may name none.
    :param record: What was judged, and the replies.
    """

    model: ChatGenerator
    prompt: Prompt
    query: str
    passages: Sequence[str]
    deadline: float
    max_workers: int = 4
    drop_unmentioned: bool = False
    allow_abstain: bool = False
    record: list[tuple[Group, Reply[Any]]] = field(default_factory=list)
    _is_gone: bool = False

    def play(self, strategy: Judged[T]) -> Steps[T]:
        """Judge the groups of a strategy to its end, as steps for `drive`; gives what the strategy returns."""
        groups = next(strategy)
        while True:
            judged = yield from self._rank(groups)
            try:
                groups = strategy.send(judged)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    def grade(self) -> Steps[dict[int, float]]:
        """Judge each candidate alone, as steps for `drive`; gives the relevance, from 0 to 1, of those judged."""
        replies = yield from ask_many(
            self.model,
            [self.prompt(query=self.query, document=quoted("passage", passage)) for passage in self.passages],
            read=read_grade,
            logprobs=True,
            max_workers=self.max_workers,
            timeout=None,
            deadline=self.deadline,
        )
        self.record += (([candidate], reply) for candidate, reply in enumerate(replies))
        return {
            candidate: expected_grade(reply.value, reply.text, reply.logprobs)
            for candidate, reply in enumerate(replies)
            if reply.value is not None
        }

    def omitted(self) -> set[int]:
        """Find the candidates that were shown and that the replies, all together, leave out."""
        readable = [(group, reply.value) for group, reply in self.record if reply.value is not None]
        seen = {candidate for group, _ in readable for candidate in group}
        named = {group[label - 1] for group, labels in readable for label in labels}
        return seen - named if self.drop_unmentioned or (self.allow_abstain and not named) else set()

    def errors(self) -> list[Exception]:
        """List why judgements failed."""
        return [reply.error for _, reply in self.record if reply.error is not None]

    def report(self) -> dict[str, Any]:
        """Sum up the record as plain data."""
        replies = [reply for _, reply in self.record]
        return {
            "calls": sum(reply.calls for reply in replies),
            "input_tokens": sum(reply.input_tokens for reply in replies),
            "output_tokens": sum(reply.output_tokens for reply in replies),
            "outcomes": dict(Counter(reply.outcome for reply in replies)),
            "windows": [
                {
                    "documents": [candidate + 1 for candidate in group],
                    "outcome": reply.outcome,
                    "error": None if reply.error is None else str(reply.error),
                }
                for group, reply in self.record
            ],
        }

    def _rank(self, groups: Sequence[Group]) -> Steps[list[Group | None]]:
        """Show each group to the model; a single candidate needs no ranking. If the model is gone, nobody waits."""
        is_asked = [len(group) > 1 or self.drop_unmentioned or self.allow_abstain for group in groups]
        asked = list(compress(groups, is_asked))
        if self._is_gone:
            replies = [replace(self.record[-1][1], calls=0, input_tokens=0, output_tokens=0)] * len(asked)
        else:
            replies = yield from ask_many(
                self.model,
                [self._listwise_prompt(group) for group in asked],
                read=[partial(self._read, count=len(group)) for group in asked],
                schema=[_schema(len(group)) for group in asked],
                max_workers=self.max_workers,
                timeout=None,
                deadline=self.deadline,
            )
            self._is_gone = bool(replies) and not any(reply.answered for reply in replies)
        self.record += zip(asked, replies, strict=True)
        named = (reply.value for reply in replies)
        labels = [next(named) if ask else [1] for ask in is_asked]
        return [None if named is None else completed(named, group) for named, group in zip(labels, groups, strict=True)]

    def _listwise_prompt(self, group: Group) -> str:
        passages = (
            quoted("passage", self.passages[candidate], label=label) for label, candidate in enumerate(group, 1)
        )
        return self.prompt(
            query=self.query,
            documents="\n".join(passages),
            count=len(group),
            drop_unmentioned=self.drop_unmentioned,
            allow_abstain=self.allow_abstain,
        )

    def _read(self, text: str, count: int) -> tuple[list[int], bool]:
        labels, mended = read_labels(text, count, allow_none=self.allow_abstain)
        is_complete = len(labels) == count or self.drop_unmentioned or not labels
        return labels, mended or not is_complete


def _schema(count: int) -> dict[str, Any]:
    labels = {"type": "array", "items": {"type": "integer", "enum": list(range(1, count + 1))}, "maxItems": count}
    return {
        "type": "object",
        "properties": {"ranking": labels},
        "required": ["ranking"],
        "additionalProperties": False,
    }
