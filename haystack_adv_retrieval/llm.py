"""
The only place that talks to a chat generator: ask one question, ask many at once, read what came back.

A helper model must never cost the user the search result. So a question has a time limit that holds whatever the
generator does, what can pass (a dropped connection, an overloaded server) is tried again, a reply that cannot be read
is asked for once more with the reason, and what fails in the end is a `Reply` that says so, not an exception.
"""

import asyncio
import contextvars
import copy
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from haystack.components.generators import chat
from haystack.components.generators.chat.types import ChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tracing.tracer import Span, tracer

from haystack_adv_retrieval.calls import Call, Parallel, Steps, drive, drive_async
from haystack_adv_retrieval.core.replies import answer_of, read_json

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

DEFAULT_MODEL = "gpt-4.1-mini"
NO_KEY = (
    "No key for the chat model: set OPENAI_API_KEY. For a local server with OpenAI's protocol (llama.cpp, Ollama, "
    "vLLM) set OPENAI_BASE_URL, such as http://localhost:8080/v1, ADV_RETRIEVAL_CHAT_MODEL to the name of its model, "
    "and OPENAI_API_KEY to any text. Or give the component a chat_generator."
)
ASK_AGAIN = "That reply could not be used: {error}. Reply again, in exactly the form that was asked for."

# How a generator is told which JSON to reply with, by class name: subclasses for other providers are met too.
_STRUCTURED_OUTPUT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "OpenAIChatGenerator": lambda schema: {"response_format": {"type": "json_schema", "json_schema": schema}},
    "OpenAIResponsesChatGenerator": lambda schema: {"text": {"format": {"type": "json_schema", **schema}}},
}
_LOG_PROBABILITIES = {"OpenAIChatGenerator": {"logprobs": True, "top_logprobs": 10}}
# Options that a generator's server refused: it is asked without them from then on.
_REFUSED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
# The event loop of each async client.
_LOOPS: WeakKeyDictionary[Any, asyncio.AbstractEventLoop] = WeakKeyDictionary()


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
    :param retries: How often a call that failed for a passing reason is repeated.
    :param reasks: How often a reply that could not be read is asked for again.
    :returns: The reply.
    """
    messages = [ChatMessage.from_user(_encodable(prompt))] if isinstance(prompt, str) else prompt
    deadline = min(deadline, time.monotonic() + timeout) if timeout is not None else deadline
    options = _options(chat_generator, schema, logprobs)
    calls = failures = unreadable = input_tokens = output_tokens = 0
    refused: dict[str, Any] = {}
    text = ""
    error: Exception = TimeoutError("not asked, since no time was left")
    while (seconds := deadline - time.monotonic()) > 0:
        calls += 1
        try:
            kwargs = {"generation_kwargs": options} if options else {}
            result = yield Call(_Limited(chat_generator, seconds), "run", {"messages": messages, **kwargs})
        except Exception as caught:
            if options and _status(caught) in (400, 422, 501):
                options, refused = {}, options
                continue
            error, failures = caught, failures + 1
            pause = _pause_asked_for(caught) or 0.25 * 2**failures
            if failures > retries or not _passing(caught) or time.monotonic() + pause >= deadline:
                break
            yield Call(_Pause(pause), "run")
            continue
        if refused:
            _REFUSED.setdefault(chat_generator, set()).update(refused)
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

    def question(prompt: str | list[ChatMessage], read: Reader[T], schema: dict[str, Any] | None) -> Steps[Reply[T]]:
        if len(unanswered) >= max(3, max_workers):
            return Reply(None, "", "failed", unanswered[-1].error, answered=False)
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


def helper_model(chat_generator: ChatGenerator | None = None) -> ChatGenerator:
    """
    Make the model of a component from its `chat_generator` parameter.

    :param chat_generator: The user's, or None for OpenAI's chat completions with the model `ADV_RETRIEVAL_CHAT_MODEL`
        (default: `DEFAULT_MODEL`), the key `OPENAI_API_KEY` and the server `OPENAI_BASE_URL`, all from the environment.
    :returns: A generator that does not stream: what helper models say is not for the user's eyes.
    """
    if chat_generator is None:
        return chat.OpenAIChatGenerator(
            model=os.environ.get("ADV_RETRIEVAL_CHAT_MODEL") or DEFAULT_MODEL,
            generation_kwargs={"temperature": 0.0},
            timeout=float(os.environ.get("OPENAI_TIMEOUT") or 600),  # `ask` has its own limit, and its own retries
            max_retries=0,
        )
    if getattr(chat_generator, "streaming_callback", None) is not None:
        chat_generator = copy.copy(chat_generator)
        chat_generator.streaming_callback = None  # type: ignore[attr-defined]
    return chat_generator


def prepare(chat_generator: ChatGenerator) -> Steps[None]:
    """
    Warm a chat generator up, as steps for `drive`; cheap when repeated.

    :param chat_generator: From `helper_model`.
    :returns: Nothing.
    :raises ValueError: If the key is missing, with how to set it or to use a local server.
    """
    if hasattr(chat_generator, "warm_up"):
        try:
            yield Call(chat_generator, "warm_up")
        except ValueError as error:
            if "OPENAI_API_KEY" not in str(error):
                raise
            raise ValueError(NO_KEY) from error


def release(chat_generator: ChatGenerator) -> Steps[None]:
    """Close a chat generator's connections, as steps for `drive`; it opens them again when it is used again."""
    if hasattr(chat_generator, "close"):
        with suppress(RuntimeError):  # says that an event loop is closed: so are the connections that it had
            yield Call(chat_generator, "close")


@dataclass(frozen=True)
class _Question:
    """One conversation as a call, so that many of them can be had side by side."""

    steps: Callable[[], Steps[Any]]

    def run(self) -> Any:
        return drive(self.steps())

    async def run_async(self) -> Any:
        return await drive_async(self.steps())


@dataclass(frozen=True)
class _Limited:
    """
    A chat generator with a time limit that holds even if it never returns, traced as Haystack traces nested generators.

    A sync call that is given up goes on in its daemon thread, since nothing can stop a thread.
    """

    generator: Any
    seconds: float

    def run(self, **kwargs: Any) -> Any:
        with _traced(self.generator, kwargs) as span:
            call = _in_thread(partial(self.generator.run, **kwargs))
            try:
                result = call.result(None if self.seconds == math.inf else self.seconds)
            except TimeoutError as error:
                raise error if call.done() else self._too_late() from None
            span.set_content_tag("haystack.component.output", result)
            return result

    async def run_async(self, **kwargs: Any) -> Any:
        with _traced(self.generator, kwargs) as span:
            if hasattr(self.generator, "run_async"):
                await _drop_dead_client(self.generator)
                call = self.generator.run_async(**kwargs)
            else:
                call = asyncio.wrap_future(_in_thread(partial(self.generator.run, **kwargs)))
            try:
                async with asyncio.timeout(None if self.seconds == math.inf else self.seconds) as limit:
                    result = await call
            except TimeoutError as error:
                raise self._too_late() if limit.expired() else error from None
            span.set_content_tag("haystack.component.output", result)
            return result

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"no reply within {self.seconds:.3g} s")


@dataclass(frozen=True)
class _Pause:
    seconds: float

    def run(self) -> None:
        time.sleep(self.seconds)

    async def run_async(self) -> None:
        await asyncio.sleep(self.seconds)


@contextmanager
def _traced(generator: Any, inputs: dict[str, Any]) -> Iterator[Span]:
    tags = {"haystack.component.name": "chat_generator", "haystack.component.type": type(generator).__name__}
    parent = tracer.current_span()
    with tracer.trace("haystack.chat_generator.run", tags=tags, parent_span=parent) as span:
        span.set_content_tag("haystack.component.input", inputs)
        yield span


def _in_thread(function: Callable[[], T]) -> "Future[T]":
    """Start a daemon thread: unlike a pool's, it keeps neither its caller nor the end of the process waiting."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


async def _drop_dead_client(generator: Any) -> None:
    """Let a generator connect anew if its async client's event loop is over: the pooled connections died with it."""
    client = getattr(generator, "async_client", None)
    if client is not None and _LOOPS.setdefault(client, asyncio.get_running_loop()).is_closed():
        generator.async_client = None
        with suppress(RuntimeError):  # says that the loop is closed; the client counts as closed nevertheless
            await client.close()


def _options(generator: Any, schema: dict[str, Any] | None, logprobs: bool) -> dict[str, Any]:
    """Make the generation arguments for structured output and log-probabilities that the generator is known to take."""
    wanted: dict[str, Any] = {}
    for name in (base.__name__ for base in type(generator).__mro__):
        if schema and name in _STRUCTURED_OUTPUT:
            wanted |= _STRUCTURED_OUTPUT[name]({"name": "reply", "strict": True, "schema": schema})
        if logprobs:
            wanted |= _LOG_PROBABILITIES.get(name, {})
    return {key: value for key, value in wanted.items() if key not in _REFUSED.get(generator, ())} if wanted else {}


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _passing(error: Exception) -> bool:
    """Tell whether the same call may succeed later: not if the request, the key or the configuration is wrong."""
    status = _status(error)
    if status is not None:
        return status in (408, 409, 425, 429) or status >= 500
    return not isinstance(error, TypeError | ValueError | LookupError | AttributeError | ImportError)


def _pause_asked_for(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None


def _encodable(text: str) -> str:
    """Replace what UTF-8 cannot carry, such as lone surrogates of a broken file."""
    return text.encode("utf-8", "replace").decode()
