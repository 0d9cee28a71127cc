"""
A chat generator as a helper model: quiet, with a time limit that holds, and with what its errors mean.

What differs between generators is here: who takes which options, whose client belongs to an event loop, and who raises
what. `asking.py` asks the questions.
"""

import asyncio
import contextvars
import copy
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from haystack.components.generators import chat
from haystack.components.generators.chat.types import ChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tracing.tracer import Span, tracer

from haystack_adv_retrieval.calls import Call, Steps

T = TypeVar("T")

DEFAULT_MODEL = "gpt-4.1-mini"
NO_KEY = (
    "No key for the chat model: set OPENAI_API_KEY. For a local server with OpenAI's protocol (llama.cpp, Ollama, "
    "vLLM) set OPENAI_BASE_URL, such as http://localhost:8080/v1, ADV_RETRIEVAL_CHAT_MODEL to the name of its model, "
    "and OPENAI_API_KEY to any text. Or give the component a chat_generator."
)
# How OpenAI's generators are told which JSON to reply with, by class name: subclasses for other providers are met too.
_STRUCTURED_OUTPUT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "OpenAIChatGenerator": lambda schema: {"response_format": {"type": "json_schema", "json_schema": schema}},
    "OpenAIResponsesChatGenerator": lambda schema: {"text": {"format": {"type": "json_schema", **schema}}},
}
_LOG_PROBABILITIES = {"OpenAIChatGenerator": {"logprobs": True, "top_logprobs": 10}}
# Options that a generator's server refused: it is asked without them from then on.
_REFUSED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
# The event loop of each async client.
_LOOPS: WeakKeyDictionary[Any, asyncio.AbstractEventLoop] = WeakKeyDictionary()


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
        except Exception as error:  # Haystack's where the key is missing, OpenAI's where it is empty
            if "OPENAI_API_KEY" not in str(error):
                raise
            raise ValueError(NO_KEY) from error


def release(chat_generator: ChatGenerator) -> Steps[None]:
    """Close a chat generator's connections, as steps for `drive`; it opens them again when it is used again."""
    if hasattr(chat_generator, "close"):
        with suppress(RuntimeError):  # says that an event loop is closed: so are the connections that it had
            yield Call(chat_generator, "close")


@dataclass(frozen=True)
class Limited:
    """
    A chat generator with a time limit that holds even if it never returns, traced as Haystack traces nested generators.

    A sync call that is given up goes on in its daemon thread, since nothing can stop a thread. OpenAI's client is told
    to hang up, so that a local server does not go on writing what nobody waits for; not one with retries of its own,
    which would call again.
    """

    generator: Any
    seconds: float

    def run(self, **kwargs: Any) -> Any:
        """Call the generator in a thread."""
        if self._should_hang_up():
            options = kwargs.get("generation_kwargs", {}) | {"timeout": self.seconds + 1}  # the limit here is the first
            kwargs = kwargs | {"generation_kwargs": options}
        with _traced(self.generator, kwargs) as span:
            call = _in_thread(partial(self.generator.run, **kwargs))
            try:
                result = call.result(None if self.seconds == math.inf else self.seconds)
            except TimeoutError as error:
                raise error if call.done() else self._too_late() from None
            span.set_content_tag("haystack.component.output", result)
            return result

    async def run_async(self, **kwargs: Any) -> Any:
        """Await the generator; one without `run_async` runs in a thread."""
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

    def _should_hang_up(self) -> bool:
        part = self.generator
        if type(part).__name__ not in _STRUCTURED_OUTPUT or "timeout" in part.generation_kwargs:
            return False
        limit = part.timeout if isinstance(part.timeout, int | float) else 0
        return part.max_retries == 0 and self.seconds < limit

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"no reply within {self.seconds:.3g} s")


def options_for(generator: Any, schema: dict[str, Any] | None, logprobs: bool) -> dict[str, Any]:
    """
    Make the generation arguments for structured output and log-probabilities.

    :param generator: A chat generator.
    :param schema: JSON schema of the reply.
    :param logprobs: Whether log-probabilities are wanted.
    :returns: The arguments that the generator is known to take and that its server has not refused.
    """
    wanted: dict[str, Any] = {}
    for name in (base.__name__ for base in type(generator).__mro__):
        if schema and name in _STRUCTURED_OUTPUT:
            wanted |= _STRUCTURED_OUTPUT[name]({"name": "reply", "strict": True, "schema": schema})
        if logprobs:
            wanted |= _LOG_PROBABILITIES.get(name, {})
    return {key: value for key, value in wanted.items() if key not in _REFUSED.get(generator, ())} if wanted else {}


def refuse(generator: Any, options: dict[str, Any]) -> None:
    """Remember options that a generator's server refused."""
    _REFUSED.setdefault(generator, set()).update(options)


def cut_off(error: Exception) -> dict[str, list[ChatMessage]]:
    """Find the reply in an error of OpenAI's client, which raises where structured output reached the token limit."""
    completion: Any = getattr(error, "completion", None)
    if not getattr(completion, "choices", None):
        return {}
    meta = {"usage": completion.usage.model_dump() if completion.usage else {}}
    return {"replies": [ChatMessage.from_assistant(completion.choices[0].message.content or "", meta=meta)]}


def status_of(error: Exception) -> int | None:
    """Find the HTTP status in an error."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def is_passing(error: Exception) -> bool:
    """Tell whether the same call may succeed later: not if the request, the key or the configuration is wrong."""
    status = status_of(error)
    if status is not None:
        return status in (408, 409, 425, 429) or status >= 500
    return not isinstance(error, TypeError | ValueError | LookupError | AttributeError | ImportError)


def pause_asked_for(error: Exception) -> float | None:
    """Find the seconds that an overloaded server asks to wait."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


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

    threading.Thread(target=work, name="chat model call", daemon=True).start()
    return future


async def _drop_dead_client(generator: Any) -> None:
    """Let a generator connect anew if its async client's event loop is over: the pooled connections died with it."""
    client = getattr(generator, "async_client", None) if hasattr(generator, "warm_up_async") else None
    if client is not None and _LOOPS.setdefault(client, asyncio.get_running_loop()).is_closed():
        generator.async_client = None
        with suppress(RuntimeError):  # says that the loop is closed; the client counts as closed nevertheless
            await client.close()
