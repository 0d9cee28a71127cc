"""A real server with every pipeline, called over HTTP as its users do."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from scripted_chat_server import ChatServer

from haystack_adv_retrieval.pipelines import PATTERNS, pipelines_folder

pytest.importorskip("hayhooks")

QUESTION = "How many days does it take until the refund for a station is paid?"
NEED_A_MODEL = {"reranked", "full"}
EVERYTHING = {path.stem for path in pipelines_folder().glob("*.yml")} | {
    path.parent.name for path in pipelines_folder().glob("*/pipeline_wrapper.py")
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def served(index: Path, log: Path, **environment: str) -> Iterator[httpx.Client]:
    """Start the server in a process of its own, wait until it answers, and kill it in the end."""
    port = free_port()
    command = [sys.executable, "-m", "haystack_adv_retrieval.cli", "serve", "--from", str(index), "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            for _ in range(600):
                assert process.poll() is None, log.read_text()
                try:
                    client.get("/status").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            yield client
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def server(handbook_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The server over a copy of the handbook's index, without a chat model."""
    folder = tmp_path_factory.mktemp("served")
    index = folder / "index"
    shutil.copytree(handbook_index, index)
    with served(index, folder / "log", OPENAI_API_KEY="", OPENAI_BASE_URL="") as client:
        yield client


def test_every_pipeline_is_up(server: httpx.Client):
    assert set(server.get("/status").json()["pipelines"]) == EVERYTHING


@pytest.mark.parametrize("name", sorted({PATTERNS[pattern] for pattern in PATTERNS} - NEED_A_MODEL))
def test_a_yaml_pipeline_answers_one_question_with_documents_as_json(server: httpx.Client, name: str):
    reply = server.post(f"/{name}/run", json={"query": QUESTION})
    assert reply.status_code == 200, reply.text
    parts = reply.json()["result"]
    texts = [document["content"] for part in parts.values() for document in part.get("documents", [])]
    assert any("within 14 days" in text for text in texts)
    assert server.post(f"/{name}/run", json={}).status_code == 422


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - NEED_A_MODEL))
def test_retrieve_gives_documents_with_spans_and_matches(server: httpx.Client, pattern: str):
    reply = server.post("/retrieve/run", json={"query": QUESTION, "pattern": pattern})
    assert reply.status_code == 200, reply.text
    documents = reply.json()["result"]["documents"]
    best = next(document for document in documents if "within 14 days" in document["content"])
    assert Path(best["source"]).name == "refunds.md"
    start, end = best["span"]
    text = Path(best["source"]).read_text(encoding="utf-8")
    if pattern != "compressed":
        assert text[start:end] == best["content"]
        assert all(matched in best["content"] for matched in best["matched"])


def test_top_k_budget_and_filters_hold(server: httpx.Client):
    body = {"query": QUESTION, "top_k": 2, "max_length": 900}
    documents = server.post("/retrieve/run", json=body).json()["result"]["documents"]
    assert len(documents) <= 2
    assert sum(len(document["content"]) for document in documents) <= 900
    filters = {"field": "meta.type", "operator": "==", "value": "report"}
    documents = server.post("/retrieve/run", json={"query": QUESTION, "filters": filters}).json()["result"]["documents"]
    assert {document["meta"]["type"] for document in documents} == {"report"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"query": "x", "top_k": 1000}, "top_k"),
        ({"query": "x", "max_length": 0}, "max_length"),
        ({"query": " "}, "query"),
        ({"query": "x" * 5000}, "query"),
        ({"query": "x", "pattern": "magic"}, "pattern"),
        ({"query": "x", "filters": {"field": "meta.a"}}, "filters"),
        ({}, "query"),
    ],
)
def test_what_the_caller_can_mend_is_a_422_with_the_reason(server: httpx.Client, body: dict, said: str):
    reply = server.post("/retrieve/run", json=body)
    assert reply.status_code == 422
    assert said in reply.text


def test_files_and_texts_are_indexed_and_found(server: httpx.Client):
    files = [
        ("files", ("moon.md", b"# Moon base\nThe moon base opens in 2031. This needs a permit.")),
        ("files", ("broken.pdf", b"%PDF-1.4 nothing")),
    ]
    report = server.post("/index/run", files=files, data={"meta": '{"planet": "moon"}'}).json()["result"]
    assert (report["added"], list(report["failures"])) == (1, ["broken.pdf"])
    body = {"query": "When does the moon base open?", "pattern": "window", "top_k": 1}
    (found,) = server.post("/retrieve/run", json=body).json()["result"]["documents"]
    assert "2031" in found["content"]
    assert (found["source"], found["meta"]["planet"]) == ("moon.md", "moon")

    texts = {"texts": [{"source_id": "moon.md", "content": "The moon base opens in 2042.", "meta": {"planet": "moon"}}]}
    assert server.post("/index_texts/run", json=texts).json()["result"]["updated"] == 1
    (found,) = server.post("/retrieve/run", json=body).json()["result"]["documents"]
    assert found["content"] == "The moon base opens in 2042."


def test_an_upload_cannot_leave_the_index_or_break_it(server: httpx.Client):
    escaping = [("files", ("../../etc/passwd.md", b"# Escape\nNot here."))]
    assert server.post("/index/run", files=escaping).json()["result"]["added"] == 1
    found = server.post("/retrieve/run", json={"query": "Escape", "top_k": 1}).json()["result"]["documents"]
    assert found[0]["source"] == "passwd.md"
    bad = server.post("/index/run", files=[("files", ("virus.exe", b"MZ"))])
    assert bad.status_code == 422
    assert "not supported" in bad.text
    assert server.post("/index/run", files=escaping, data={"meta": "[]"}).status_code == 422


def test_code_cannot_be_deployed_and_errors_tell_nothing(server: httpx.Client):
    assert server.post("/deploy-yaml", json={"name": "x", "source_code": "components: {}"}).status_code == 403
    assert server.post("/undeploy/parent").status_code == 403
    assert server.post("/retrieve/run", content=b"x" * 60_000_000).status_code == 413
    failed = server.post("/reranked/run", json={"query": QUESTION})  # there is no key
    assert failed.status_code == 500
    assert failed.json() == {"detail": "Something went wrong; the server's log says what"}


def test_chat_without_a_model_gives_the_passages_with_a_note(server: httpx.Client):
    client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none")
    messages = [{"role": "user", "content": QUESTION}]
    reply = client.chat.completions.create(model="chat", messages=messages).choices[0].message.content
    assert reply.startswith("No chat model is configured")
    assert "within 14 days of this" in reply
    assert "[1] " in reply.split("Sources:")[1]


def test_many_clients_at_once_get_the_same_answers(server: httpx.Client):
    body = {"query": QUESTION, "pattern": "window", "top_k": 3, "filters": None}
    expected = server.post("/retrieve/run", json=body).json()

    def ask(number: int) -> bool:
        if number % 8 == 0:
            text = {"source_id": f"note-{number}", "content": f"Pottery note number {number}."}
            return server.post("/index_texts/run", json={"texts": [text]}).status_code == 200
        return server.post("/retrieve/run", json=body).json() == expected

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(48)))


def test_chat_cites_its_sources_streaming_and_not(handbook_index: Path, tmp_path: Path, chat_server: ChatServer):
    def model(request: dict) -> str:
        prompt = json.dumps(request["messages"])
        return "It takes 14 days [1], not 30 [99]." if "numbered passages" in prompt else "[1, 2, 3]"

    chat_server.script(model)
    index = tmp_path / "index"
    shutil.copytree(handbook_index, index)
    with served(index, tmp_path / "log", OPENAI_API_KEY="none", OPENAI_BASE_URL=chat_server.url) as server:
        client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none")
        messages = [{"role": "user", "content": QUESTION}]
        whole = client.chat.completions.create(model="chat", messages=messages).choices[0].message.content
        pieces = client.chat.completions.create(model="chat", messages=messages, stream=True)
        streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    for reply in (whole, streamed):
        assert reply.startswith("It takes 14 days [1], not 30 [99].")
        assert "[1, 2, 3]" not in reply, "the words of helper models stay inside"
        cited = reply.split("Sources:")[1]
        assert "[1] " in cited
        assert "[99]" not in cited


def test_a_server_that_is_killed_while_it_indexes_leaves_whole_sources(handbook_index: Path, tmp_path: Path):
    index = tmp_path / "index"
    shutil.copytree(handbook_index, index)
    long = "\n\n".join(f"Paragraph {n} is about pottery. It has a second sentence." for n in range(400))
    with served(index, tmp_path / "log") as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.post, "/index/run", files=[("files", ("long.md", long.encode()))])
        time.sleep(1.5)
    with served(index, tmp_path / "log") as server:
        for document in server.post("/retrieve/run", json={"query": "pottery"}).json()["result"]["documents"]:
            if document["source"] == "long.md":
                start, end = document["span"]
                assert document["content"] == long[start:end]
        report = server.post("/index/run", files=[("files", ("long.md", long.encode()))]).json()["result"]
        assert report["failures"] == {}
        found = server.post("/retrieve/run", json={"query": "Paragraph 399 pottery", "pattern": "window"}).json()
        assert any("Paragraph 399" in document["content"] for document in found["result"]["documents"])


def test_a_pipeline_that_does_not_start_is_an_error(handbook_index: Path, tmp_path: Path):
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "broken.yml").write_text("components: {a: {type: no.such.Thing}}\nconnections: []\ninputs: {q: a.q}\n")
    command = [sys.executable, "-m", "haystack_adv_retrieval.cli", "serve", "--from", str(handbook_index)]
    command += ["--port", str(free_port()), "--pipelines", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode != 0
    assert "did not start" in result.stdout + result.stderr
    assert "broken" in result.stdout + result.stderr
