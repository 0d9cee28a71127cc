"""
Ask a chat generator: one question, or many at once, and read what came back. Nothing else talks to one.

A helper model must never cost the user the search result. So a question has a time limit that holds whatever the
generator does, what can pass (a dropped connection, an overloaded server) is tried again, a reply that cannot be read
is asked for once more with the reason, and what fails in the end is a `Reply` that says so, not an exception.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from haystack.components.generators.chat.types import ChatGenerator
from haystack.dataclasses import ChatMessage

from haystack_adv_retrieval.calls import Call, Parallel, Steps, drive, drive_async, pause
from haystack_adv_retrieval.core.replies.answers import answer_of, read_json
from haystack_adv_retrieval.llm.chat_model import (
    Limited,
    cut_off,
    helper_model,
    is_passing,
    options_for,
    pause_asked_for,
    prepare,
    refuse,
    release,
    status_of,
)

__all__ = [
    "Outcome",
    "Reader",
    "Reply",
    "ask",
    "ask_many",
    "helper_model",
    "prepare",
    "read_json",
    "read_text",
    "release",
]

T = TypeVar("T")
Outcome = Literal["ok", "repaired", "retried", "failed"]
Reader = Callable[[str], tuple[T, bool]]

ASK_AGAIN = "That reply could not be used: {error}. Reply again, in exactly the form that was asked for."


@dataclass(frozen=True)
class Reply(Generic[T]):
    """
    What came of one question.

    :param value: What was read from the reply; None if it failed.
    :param text: The last answer, without the model's thoughts.
    :param outcome: "ok", "repaired" (the reader had to mend the reply), "retried" (a later try gave the value) or
        "failed".
    :param error: Why it failed.
    :param answered: Whether the model said anything at all; False if no call came through.
    :param calls: How many calls it took.
    :param input_tokens: Tokens read by the model, all calls together, as far as the generator reports them.
    :param output_tokens: Tokens written by the model.
    :param logprobs: The log-probabilities of the tokens, in OpenAI's form; empty if the generator gives none.
    """

    value: T | None
    text: str
    outcome: Outcome
    error: Exception | None = None
    answered: bool = True
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    logprobs: list[dict[str, Any]] = field(default_factory=list)


def read_text(text: str) -> tuple[str, bool]:
    """
    Read a reply as plain text.

    :param text: The answer.
    :returns: The same text, and False, since nothing was mended.
    :raises ValueError: If it is empty.
    """
    if not text:
        raise ValueError("the reply is empty")
    return text, False


def ask(
    chat_generator: ChatGenerator,
    prompt: str | list[ChatMessage],
    *,
    read: Reader[T] = read_text,  # type: ignore[assignment]
    schema: dict[str, Any] | None = None,
    logprobs: bool = False,
    timeout: float | None = 60.0,
    deadline: float = math.inf,
    retries: int = 2,
    reasks: int = 1,
) -> Steps[Reply[T]]:
    """
    Ask a chat generator, as steps for `drive`. Never raises for what the model or its server does.

    :param chat_generator: Any Haystack chat generator, from `helper_model`.
    :param prompt: A user message, or the messages.
    :param read: Turns the answer (thoughts cut away) into a value and whether it had to be mended, or raises with the
        reason, which the model is told when it is asked again. `read_json` is one.
    :param schema: JSON schema of the reply, used where the generator supports structured output.
    :param logprobs: Whether to ask for log-probabilities, where the generator supports them.
    :param timeout: Seconds for this question, all tries together; None for no limit.
    :param deadline: A `time.monotonic()` after which nothing is waited for.
    :param retries: How often a call that failed for a passing reason is repeated. A generator with `max_retries` of its
        own repeats it itself.
    :param reasks: How often a reply that could not be read is asked for again.
    :returns: The reply.
    """
    messages = [ChatMessage.from_user(_encodable(prompt))] if isinstance(prompt, str) else prompt
    deadline = min(deadline, time.monotonic() + timeout) if timeout is not None else deadline
    options = options_for(chat_generator, schema, logprobs)
    retries = 0 if getattr(chat_generator, "max_retries", 0) != 0 else retries
    calls = failures = unreadable = input_tokens = output_tokens = 0
    refused: dict[str, Any] = {}
    text = ""
    error: Exception = TimeoutError("not asked, since no time was left")
    while (seconds := deadline - time.monotonic()) > 0:
        calls += 1
        try:
            kwargs = {"generation_kwargs": options} if options else {}
            result = yield Call(Limited(chat_generator, seconds), "run", {"messages": messages, **kwargs})
        except Exception as caught:
            result = cut_off(caught)
            if not result:
                if options and status_of(caught) in (400, 422, 501):
                    options, refused = {}, options
                    continue
                error, failures = caught, failures + 1
                wait = pause_asked_for(caught) or 0.25 * 2**failures
                if failures > retries or not is_passing(caught) or time.monotonic() + wait >= deadline:
                    break
                yield pause(wait)
                continue
        if refused:
            refuse(chat_generator, refused)
        try:
            message = result["replies"][0]
            usage = message.meta.get("usage") or {}
            input_tokens += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
            output_tokens += usage.get("completion_tokens") or usage.get("output_tokens") or 0
            text = answer_of(message.text or "")
            value, repaired = read(text)
        except Exception as caught:
            error, unreadable = caught, unreadable + 1
            if unreadable > reasks:
                break
            if text:
                again = ChatMessage.from_user(_encodable(ASK_AGAIN.format(error=caught)))
                messages = [*messages, ChatMessage.from_assistant(_encodable(text[:2000])), again]
        else:
            outcome: Outcome = "retried" if failures or unreadable else "repaired" if repaired else "ok"
            tokens = (message.meta.get("logprobs") or {}).get("content") or []
            return Reply(value, text, outcome, None, True, calls, input_tokens, output_tokens, tokens)
    return Reply(None, text, "failed", error, unreadable > 0, calls, input_tokens, output_tokens)


def ask_many(
    chat_generator: ChatGenerator,
    prompts: Sequence[str | list[ChatMessage]],
    *,
    read: Reader[T] | Sequence[Reader[T]] = read_text,  # type: ignore[assignment]
    schema: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None,
    max_workers: int = 4,
    **options: Any,
) -> Steps[list[Reply[T]]]:
    """
    Ask independent questions, as steps for `drive`.

    If none of a row of questions gets an answer, the rest is not asked: the model is not there.

    :param chat_generator: Any Haystack chat generator, from `helper_model`.
    :param prompts: The questions.
    :param read: As for `ask`: one for all questions, or one for each.
    :param schema: As for `ask`: one for all questions, or one for each.
    :param max_workers: How many are asked at the same time.
    :param options: As for `ask`; `timeout` is for each question, from when it is asked.
    :returns: One reply per question, in their order.
    """
    unanswered: list[Reply[T]] = []  # in a row
    enough = max(3, max_workers)

    def question(prompt: str | list[ChatMessage], read: Reader[T], schema: dict[str, Any] | None) -> Steps[Reply[T]]:
        recent = unanswered[-enough:]  # in one step, as another thread may empty the list at any time
        if len(recent) == enough:
            return Reply(None, "", "failed", recent[-1].error, answered=False)
        reply = yield from ask(chat_generator, prompt, read=read, schema=schema, **options)
        if reply.answered:
            unanswered.clear()
        else:
            unanswered.append(reply)
        return reply

    reads = read if isinstance(read, Sequence) else [read] * len(prompts)
    schemas = schema if isinstance(schema, Sequence) else [schema] * len(prompts)
    questions = [_Question(partial(question, *each)) for each in zip(prompts, reads, schemas, strict=True)]
    replies = yield Parallel([Call(each, "run") for each in questions], max_workers)
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    return replies  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Question:
    """One conversation as a call, so that many of them can be had side by side."""

    steps: Callable[[], Steps[Any]]

    def run(self) -> Any:
        return drive(self.steps())

    async def run_async(self) -> Any:
        return await drive_async(self.steps())


def _encodable(text: str) -> str:
    """Replace what UTF-8 cannot carry, such as lone surrogates of a broken file."""
    return text.encode("utf-8", "replace").decode()
