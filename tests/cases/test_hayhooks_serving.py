"""Cases of served pipelines that asked for too much, said too much, ran old code or held each other up."""

import asyncio
import inspect
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from haystack import Document, component
from haystack.dataclasses import ChatMessage
from openai import OpenAI
from scripted_chat_server import Answer, ChatServer

import haystack_adv_retrieval
from haystack_adv_retrieval import LLMRanker
from haystack_adv_retrieval.pipelines import pipelines_folder

pytest.importorskip("hayhooks")

PATH = Path(__file__).parents[1] / "data" / "cases" / "hayhooks_serving.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
SEARCHES = sorted({path.stem for path in pipelines_folder().glob("*.yml")} - {"indexing"})
DOCUMENTS = [Document(content="A weir holds water. It is old."), Document(content="A mill has a weir. It is new.")]
WRAPPER = """
from hayhooks import BasePipelineWrapper


class PipelineWrapper(BasePipelineWrapper):
    def setup(self) -> None:
        pass

    def run_api(self) -> str:
        return "v1"
"""


def cases(key: str) -> Any:
    chosen = [case for case in CASES if key in case]
    return pytest.mark.parametrize("case", chosen, ids=[case["case"] for case in chosen])


@pytest.mark.parametrize("name", SEARCHES)
@cases("post")
def test_one_question_is_enough(case: dict[str, Any], name: str, hayhooks: httpx.Client) -> None:
    reply, expect = hayhooks.post(f"/{name}/run", json=case["post"]), case["expect"]
    assert reply.status_code == expect["status"], reply.text
    assert expect.get("mentions", "") in reply.text
    if "required" in expect:
        schemas = hayhooks.get("/openapi.json").json()["components"]["schemas"]
        assert schemas[f"{name}RunRequest"]["required"] == expect["required"]


@cases("helper")
def test_only_the_answer_is_streamed(
    case: dict[str, Any], hayhooks: httpx.Client, model_of_hayhooks: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: dict[str, Any]) -> str:
        return case["answer"] if "numbered passages" in json.dumps(request["messages"]) else case["helper"]

    monkeypatch.setattr(model_of_hayhooks, "_script", [reply])
    client = OpenAI(base_url=f"{hayhooks.base_url}/v1", api_key="none")
    messages: Any = [{"role": "user", "content": "When is a refund paid?"}]
    model_of_hayhooks.requests.clear()
    pieces = client.chat.completions.create(model="chat", messages=messages, stream=True)
    said = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert len(model_of_hayhooks.requests) > 1
    assert case["answer"] in said
    assert case["helper"] not in said


def test_no_component_takes_a_callback_for_what_its_model_says() -> None:
    parts = [getattr(haystack_adv_retrieval, name) for name in haystack_adv_retrieval.__all__]
    parts = [part for part in parts if part in component.registry.values()]
    assert LLMRanker in parts
    for part in parts:
        for method in (part.__init__, part.run, getattr(part, "run_async", part.run)):
            assert "streaming_callback" not in inspect.signature(method).parameters


@cases("versions")
def test_redeploying(case: dict[str, Any], hayhooks: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "mine"
    source.mkdir()
    wrapper = source / "pipeline_wrapper.py"
    said = []
    for version in case["versions"]:
        wrapper.write_text(WRAPPER.replace("v1", version))
        body = {"name": "mine", "files": {wrapper.name: wrapper.read_text()}, "overwrite": bool(said)}
        assert hayhooks.post("/deploy_files", json=body).status_code == 200
        said.append(hayhooks.post("/mine/run", json={}).json()["result"])
    assert hayhooks.post("/undeploy/mine").status_code == 200
    assert hayhooks.post("/mine/run", json={}).status_code == 404
    assert said == case["versions"]
    assert wrapper.is_file()


@cases("delay")
async def test_runs_wait_side_by_side(case: dict[str, Any], chat_server: ChatServer) -> None:
    chat_server.script(Answer(case["reply"], delay=case["delay"]))
    part = getattr(haystack_adv_retrieval, case["component"])(chat_generator=chat_server.generator(), **case["init"])
    inputs: dict[str, Any] = {"query": "weir", "documents": DOCUMENTS}
    inputs = {name: value for name, value in inputs.items() if name in inspect.signature(part.run).parameters}
    expected = await asyncio.to_thread(part.run, **inputs)
    chat_server.script(Answer(case["reply"], delay=case["delay"]))
    results = await asyncio.gather(*(part.run_async(**inputs) for _ in range(case["runs"])))
    assert chat_server.peak >= case["runs"]
    key = "documents" if "documents" in inputs else "filters"
    assert [result[key] for result in results] == [expected[key]] * case["runs"]


@component
class Patient:
    """A chat generator without `run_async` that replies when it is allowed to."""

    def __init__(self, reply: str) -> None:
        self.reply = reply
        self.asked = threading.Semaphore(0)
        self.allowed = threading.Event()

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:  # noqa: ARG002
        self.asked.release()
        if not self.allowed.wait(30):
            raise TimeoutError("was not allowed to reply")
        return {"replies": [ChatMessage.from_assistant(self.reply)]}


@cases("only_sync")
async def test_the_event_loop_goes_on(case: dict[str, Any]) -> None:
    model = Patient(case["reply"])
    ranker = LLMRanker(model, raise_on_failure=True)
    runs = [asyncio.create_task(ranker.run_async("weir", DOCUMENTS)) for _ in range(case["runs"])]
    for _ in runs:
        assert await asyncio.to_thread(model.asked.acquire, timeout=30)
    model.allowed.set()  # only an event loop that goes on gets here
    results = await asyncio.gather(*runs)
    assert results[0]["documents"] == LLMRanker(model).run("weir", DOCUMENTS)["documents"]
    assert {result["documents"][0].id for result in results} == {DOCUMENTS[1].id}
