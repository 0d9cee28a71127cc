import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from haystack.components.generators.chat import MockChatGenerator, OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tracing.tracer import Span, Tracer, disable_tracing, enable_tracing
from httpx import Timeout
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.llm.asking import Reply, ask, ask_many, helper_model, prepare, read_json, release
from haystack_adv_retrieval.llm.chat_model import NO_KEY, options_for


def run_sync(steps: Steps[Any]) -> Any:
    return drive(steps)


def run_async(steps: Steps[Any]) -> Any:
    return asyncio.run(drive_async(steps))


Run = Callable[[Steps[Any]], Any]


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Drive steps, in either way."""
    return request.param  # type: ignore[no-any-return]


class Sleeper:
    """A chat generator that neither answers nor knows a time limit."""

    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:  # noqa: ARG002
        time.sleep(3)
        return {"replies": []}


class Broken:
    """A chat generator that gives back what it was made with, or raises it."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)

    def run(self, messages: list[ChatMessage]) -> Any:  # noqa: ARG002
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


def said(text: str) -> dict[str, list[ChatMessage]]:
    return {"replies": [ChatMessage.from_assistant(text)]}


def test_a_reply_comes_with_what_it_cost(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("two words")
    reply = run(ask(chat_server.generator(), "one two three"))
    assert (reply.value, reply.outcome, reply.calls) == ("two words", "ok", 1)
    assert (reply.input_tokens, reply.output_tokens) == (3, 2)


def test_an_unreadable_reply_is_asked_for_again_with_the_reason(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("I would say yes.", '{"a": 1}')
    reply = run(ask(chat_server.generator(), "q", read=read_json))
    assert (reply.value, reply.outcome, reply.calls) == ({"a": 1}, "retried", 2)
    assert [message["role"] for message in chat_server.requests[1]["messages"]] == ["user", "assistant", "user"]
    assert "the reply holds no JSON object" in chat_server.prompts[1]


def test_a_reply_that_stays_unreadable_fails_with_its_text(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("I would say yes.")
    reply = run(ask(chat_server.generator(), "q", read=read_json, reasks=2))
    assert (reply.value, reply.outcome, reply.text, reply.calls) == (None, "failed", "I would say yes.", 3)
    assert reply.answered
    assert isinstance(reply.error, ValueError)


def test_a_mended_reply_is_told_from_a_clean_one(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("{'a': 1,}")
    assert run(ask(chat_server.generator(), "q", read=read_json)).outcome == "repaired"


@pytest.mark.parametrize(
    "fault", [Answer(status=503), Answer(status=429, headers={"Retry-After": "0.1"}), Answer(drop=True)]
)
def test_what_passes_is_tried_again(chat_server: ChatServer, run: Run, fault: Answer) -> None:
    chat_server.script(fault, "ok")
    reply = run(ask(chat_server.generator(), "q"))
    assert (reply.value, reply.outcome, reply.calls) == ("ok", "retried", 2)


def test_what_does_not_pass_is_not_tried_again(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer("wrong key", status=401))
    reply = run(ask(chat_server.generator(), "q"))
    assert (reply.outcome, reply.calls, reply.answered) == ("failed", 1, False)
    assert "wrong key" in str(reply.error)


def test_tries_are_bounded(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer(status=500))
    assert run(ask(chat_server.generator(), "q", retries=1)).calls == 2
    assert len(chat_server.requests) == 2


def test_retries_do_not_add_up_with_those_of_the_generator(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer(status=500))
    assert run(ask(chat_server.generator(max_retries=1), "q", retries=2)).calls == 1
    assert len(chat_server.requests) == 2


def test_nobody_waits_longer_than_the_time_limit(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer("late", delay=3), Answer(status=429, headers={"Retry-After": "60"}))
    for generator in (chat_server.generator(), chat_server.generator(), Sleeper()):
        start = time.monotonic()
        reply = run(ask(generator, "q", timeout=0.3))
        assert time.monotonic() - start < 2
        assert (reply.outcome, reply.answered) == ("failed", False)


def test_after_the_deadline_nothing_is_asked(chat_server: ChatServer, run: Run) -> None:
    reply = run(ask(chat_server.generator(), "q", deadline=time.monotonic() - 1))
    assert (reply.outcome, reply.calls, chat_server.requests) == ("failed", 0, [])
    assert "no time was left" in str(reply.error)


@pytest.mark.parametrize("nothing", [None, {}, {"replies": []}, {"replies": [None]}, said("")])
def test_a_generator_that_gives_nothing_fails_and_does_not_raise(run: Run, nothing: Any) -> None:
    assert run(ask(Broken(nothing), "q")).outcome == "failed"


def test_errors_of_any_kind_become_the_reply(run: Run) -> None:
    reply = run(ask(Broken(RuntimeError("503")), "q", retries=0))
    assert (reply.outcome, str(reply.error)) == ("failed", "503")
    assert run(ask(Broken(OSError("down"), said("up")), "q")).value == "up"


def test_thoughts_are_not_the_answer(run: Run) -> None:
    assert run(ask(Broken(said("<think>{'a': 2}</think>{\"a\": 1}")), "q", read=read_json)).value == {"a": 1}


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_a_generator_that_can_is_told_the_schema(chat_server: ChatServer, run: Run) -> None:
    chat_server.script('{"a": 1}')
    run(ask(chat_server.generator(), "q", read=read_json, schema=SCHEMA))
    assert chat_server.requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA


def test_structured_output_that_reached_the_token_limit_is_read_as_far_as_it_goes(
    chat_server: ChatServer, run: Run
) -> None:
    chat_server.script(Answer('{"a": [1, 2, 3', finish_reason="length"))
    reply = run(ask(chat_server.generator(), "q", read=read_json, schema=SCHEMA))
    assert (reply.value, reply.outcome, reply.calls, reply.output_tokens) == ({"a": [1, 2]}, "repaired", 1, 4)


def test_the_schema_goes_where_each_generator_takes_it() -> None:
    chat_completions = options_for(OpenAIChatGenerator(), SCHEMA, logprobs=True)
    assert chat_completions["response_format"]["json_schema"]["schema"] == SCHEMA
    assert chat_completions["logprobs"] is True
    responses = options_for(OpenAIResponsesChatGenerator(), SCHEMA, logprobs=True)
    assert responses == {"text": {"format": {"type": "json_schema", "name": "reply", "strict": True, "schema": SCHEMA}}}


def test_a_server_that_refuses_the_schema_is_asked_without_from_then_on(chat_server: ChatServer, run: Run) -> None:
    def picky(body: dict[str, Any]) -> str | Answer:
        return Answer("no response_format", status=400) if "response_format" in body else '{"a": 1}'

    chat_server.script(picky)
    generator = chat_server.generator()
    first = run(ask(generator, "q", read=read_json, schema=SCHEMA))
    assert (first.value, first.outcome, first.calls) == ({"a": 1}, "ok", 2)
    assert run(ask(generator, "q", read=read_json, schema=SCHEMA)).calls == 1


def test_a_request_that_is_bad_in_itself_does_not_cost_the_schema(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer("too long", status=400), Answer("too long", status=400), '{"a": 1}')
    generator = chat_server.generator()
    assert run(ask(generator, "q", schema=SCHEMA)).outcome == "failed"
    run(ask(generator, "q", schema=SCHEMA))
    assert "response_format" in chat_server.requests[-1]


def test_log_probabilities_come_with_the_reply(chat_server: ChatServer, run: Run) -> None:
    tokens = [{"token": "2", "logprob": -0.1, "bytes": None, "top_logprobs": []}]
    chat_server.script(Answer("2", logprobs=tokens))
    reply = run(ask(chat_server.generator(), "q", logprobs=True))
    assert chat_server.requests[0]["logprobs"] is True
    assert [token["token"] for token in reply.logprobs] == ["2"]


def test_other_generators_are_asked_without_options(run: Run) -> None:
    assert run(ask(MockChatGenerator('{"a": 1}'), "q", read=read_json, schema=SCHEMA, logprobs=True)).value == {"a": 1}


def test_text_that_no_encoding_carries_is_sent_without(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("ok")
    assert run(ask(chat_server.generator(), "a \ud800 b")).value == "ok"
    assert chat_server.prompts == ["a ? b"]


def test_many_are_asked_at_once_and_answered_in_order(chat_server: ChatServer, run: Run) -> None:
    prompts = [str(number) for number in range(8)]
    chat_server.script(lambda body: Answer(body["messages"][0]["content"], delay=0.1 if "0" in str(body) else 0.02))
    replies = run(ask_many(chat_server.generator(), prompts, max_workers=3))
    assert [reply.value for reply in replies] == prompts
    assert 1 < chat_server.peak <= 3


def test_one_that_fails_does_not_hurt_the_others(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(lambda body: Answer(status=500) if "bad" in str(body) else "ok")
    replies = run(ask_many(chat_server.generator(), ["a", "bad", "b"], retries=0))
    assert [reply.outcome for reply in replies] == ["ok", "failed", "ok"]


def test_a_model_that_is_not_there_is_not_asked_for_ever(chat_server: ChatServer, run: Run) -> None:
    chat_server.script(Answer("down", status=503))
    replies = run(ask_many(chat_server.generator(), ["q"] * 50, max_workers=2, retries=0))
    assert {reply.outcome for reply in replies} == {"failed"}
    assert all("down" in str(reply.error) for reply in replies)
    assert len(chat_server.requests) <= 5


def test_an_answer_that_comes_while_another_question_gives_up_does_no_harm() -> None:
    parallel: Any = next(ask_many(MockChatGenerator("unused"), ["q"] * 5, max_workers=3, retries=0))
    *failing, slow, last = [call.target.steps() for call in parallel.calls]
    for steps in (*failing, slow):
        next(steps)  # asked
    for steps in failing:
        with pytest.raises(StopIteration):
            steps.throw(RuntimeError("down"))
    lines: list[int] = []

    def interrupt(frame: Any, event: str, _arg: Any) -> Any:
        """Let the slow answer come in between the first line of the last question and its second."""
        if frame.f_code.co_name == "question" and event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == 2:
                with pytest.raises(StopIteration):
                    slow.send(said("yes"))
        return interrupt

    sys.settrace(interrupt)
    try:
        with pytest.raises(StopIteration) as stop:
            next(last)
    finally:
        sys.settrace(None)
    assert len(lines) > 2
    assert str(stop.value.value.error) == "down"


def test_each_question_can_have_its_own_reader_and_schema(chat_server: ChatServer, run: Run) -> None:
    chat_server.script('{"a": 1}')
    reads: list[Any] = [read_json, lambda text: (len(text), False)]
    steps: Steps[list[Any]] = ask_many(chat_server.generator(), ["q", "q"], read=reads, schema=[SCHEMA, None])
    replies = run(steps)
    assert [reply.value for reply in replies] == [{"a": 1}, 8]
    assert ["response_format" in request for request in chat_server.requests].count(True) == 1


def test_one_generator_serves_several_event_loops(chat_server: ChatServer) -> None:
    chat_server.script("ok")
    generator = chat_server.generator()

    def conversation() -> Steps[list[Any]]:
        yield from prepare(generator)
        return (yield from ask_many(generator, ["q"] * 4, retries=0))

    for _ in range(3):
        assert [reply.outcome for reply in asyncio.run(drive_async(conversation()))] == ["ok"] * 4


def test_one_generator_serves_several_threads(chat_server: ChatServer) -> None:
    chat_server.script(lambda body: body["messages"][0]["content"])
    generator = chat_server.generator()
    with ThreadPoolExecutor(8) as pool:
        replies: list[Reply[str]] = list(pool.map(lambda number: drive(ask(generator, str(number))), range(24)))
    assert [reply.value for reply in replies] == [str(number) for number in range(24)]


def test_a_helper_model_never_streams(chat_server: ChatServer, run: Run) -> None:
    chat_server.script("ok")
    chunks: list[Any] = []
    generator = chat_server.generator(streaming_callback=chunks.append)
    assert run(ask(helper_model(generator), "q")).value == "ok"
    assert (chunks, chat_server.requests[0]["stream"]) == ([], False)
    assert generator.streaming_callback is not None  # the user's own is as it was


def test_the_default_model_is_the_environments(
    chat_server: ChatServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("ADV_RETRIEVAL_CHAT_MODEL", "local")
    chat_server.script("ok")
    model = helper_model()
    run(prepare(model))
    assert run(ask(model, "q")).value == "ok"
    assert (chat_server.requests[0]["model"], chat_server.requests[0]["temperature"]) == ("local", 0)
    run(release(model))


@pytest.mark.parametrize("key", [None, ""])
def test_a_missing_key_is_named_with_the_way_to_a_local_server(
    key: str | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=r"OPENAI_API_KEY.*OPENAI_BASE_URL") as caught:
        run(prepare(helper_model()))
    assert str(caught.value) == NO_KEY


def test_generators_without_a_life_cycle_are_left_alone(run: Run) -> None:
    run(prepare(Sleeper()))
    run(release(Sleeper()))


def test_calls_are_traced_below_the_caller(chat_server: ChatServer, run: Run) -> None:
    spans: list[tuple[str, str | None]] = []

    class Named(Span):
        def __init__(self, name: str) -> None:
            self.name = name

        def set_tag(self, key: str, value: Any) -> None:
            pass

    current = Named("caller")

    class Recorder(Tracer):
        def trace(self, operation_name: str, tags: Any = None, parent_span: Any = None) -> Any:  # noqa: ARG002
            spans.append((operation_name, parent_span.name if parent_span else None))
            return nullcontext(Named(operation_name))

        def current_span(self) -> Any:
            return current

    chat_server.script("ok")
    enable_tracing(Recorder())
    try:
        run(ask_many(chat_server.generator(), ["a", "b"]))
    finally:
        disable_tracing()
    assert spans == [("haystack.chat_generator.run", "caller")] * 2


def test_a_call_that_was_given_up_keeps_no_thread_alive(chat_server: ChatServer) -> None:
    before = set(threading.enumerate())
    chat_server.script(Answer("late", delay=2))
    drive(ask(chat_server.generator(), "q", timeout=0.1))
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)


def test_a_call_that_was_given_up_hangs_up(chat_server: ChatServer) -> None:
    chat_server.script(Answer("late", delay=60))
    drive(ask(chat_server.generator(timeout=600), "q", timeout=0.1))
    calls = [thread for thread in threading.enumerate() if thread.name == "chat model call"]
    assert len(calls) == 1
    calls[0].join(5)
    assert not calls[0].is_alive()


def test_a_generator_with_retries_of_its_own_does_not_call_again_for_a_call_that_was_given_up(
    chat_server: ChatServer,
) -> None:
    chat_server.script(Answer("late", delay=3))
    drive(ask(chat_server.generator(timeout=600, max_retries=2), "q", timeout=0.1))
    (call,) = [thread for thread in threading.enumerate() if thread.name == "chat model call"]
    call.join(10)
    assert not call.is_alive()
    assert len(chat_server.requests) == 1


def test_a_time_limit_of_the_generator_itself_is_kept(chat_server: ChatServer) -> None:
    chat_server.script(Answer("late", delay=3))
    own = chat_server.generator(timeout=600, generation_kwargs={"timeout": 0.3})
    assert "timed out" in str(drive(ask(own, "q", timeout=2, retries=0)).error)
    chat_server.script("ok")
    assert drive(ask(chat_server.generator(timeout=Timeout(600)), "q")).value == "ok"


def test_the_default_generator_talks_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADV_RETRIEVAL_CHAT_MODEL", raising=False)
    assert isinstance(helper_model(), OpenAIChatGenerator)
