"""Real servers with every pipeline, called over HTTP as their users do."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from index_states import check_trees
from openai import OpenAI
from scripted_chat_server import Answer, ChatServer
from servers import free_port, served
from servers import hayhooks as run_hayhooks
from typer.testing import CliRunner

from haystack_adv_retrieval import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing.maintenance import status
from haystack_adv_retrieval.pipelines import PATTERNS, pipelines_folder

pytest.importorskip("hayhooks")

QUESTION = "How many days does it take until the refund for a station is paid?"
ANSWER = "within 14 days of this"
ASKED = [{"role": "user", "content": QUESTION}]
NEED_A_MODEL = {"reranked", "full"}
YAML = {path.stem for path in pipelines_folder().glob("*.yml")}
EVERYTHING = YAML | {path.parent.name for path in pipelines_folder().glob("*/pipeline_wrapper.py")}


def found_by(server: httpx.Client, query: str, **options: object) -> list[dict]:
    reply = server.post("/retrieve/run", json={"query": query, **options})
    assert reply.status_code == 200, reply.text
    return reply.json()["result"]["documents"]


def contents(reply: httpx.Response) -> list[str]:
    """The texts in the reply of a YAML pipeline."""
    assert reply.status_code == 200, reply.text
    return [each["content"] for part in reply.json()["result"].values() for each in part.get("documents", [])]


def test_every_pipeline_is_up(server: httpx.Client):
    assert set(server.get("/status").json()["pipelines"]) == EVERYTHING


@pytest.mark.parametrize("name", sorted({PATTERNS[pattern] for pattern in PATTERNS} - NEED_A_MODEL))
def test_a_yaml_pipeline_answers_one_question_with_documents_as_json(server: httpx.Client, name: str):
    reply = server.post(f"/{name}/run", json={"query": QUESTION})
    assert any(ANSWER in text for text in contents(reply))
    assert server.post(f"/{name}/run", json={}).status_code == 422


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - NEED_A_MODEL))
def test_retrieve_gives_documents_with_spans_and_matches(server: httpx.Client, pattern: str):
    documents = found_by(server, QUESTION, pattern=pattern)
    best = next(document for document in documents if ANSWER in document["content"])
    assert Path(best["source"]).name == "refunds.md"
    start, end = best["span"]
    text = Path(best["source"]).read_text(encoding="utf-8")
    if pattern != "compressed":
        assert text[start:end] == best["content"]
        assert all(matched in best["content"] for matched in best["matched"])


def test_top_k_budget_and_filters_hold(server: httpx.Client):
    documents = found_by(server, QUESTION, top_k=2, max_length=900)
    assert len(documents) <= 2
    assert sum(len(document["content"]) for document in documents) <= 900
    filters = {"field": "meta.type", "operator": "==", "value": "report"}
    for pattern in ("parent", "summary", "self-query"):
        documents = found_by(server, QUESTION, filters=filters, pattern=pattern)
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
        ({"query": "x", "filters": {"field": 3, "operator": "==", "value": 1}}, "field"),
        ({"query": "x", "filters": {"operator": "AND", "conditions": [1]}, "pattern": "self-query"}, "dictionary"),
        ({"query": "x", "filters": {"field": "meta.a", "operator": "~", "value": 1}}, "operator"),
        ({}, "query"),
    ],
)
def test_what_the_caller_can_mend_is_a_422_with_the_reason(server: httpx.Client, body: dict, said: str):
    reply = server.post("/retrieve/run", json=body)
    assert reply.status_code == 422
    assert said in reply.text


def test_a_question_is_limited_in_every_pipeline(server: httpx.Client):
    for name in sorted(YAML - {"indexing"}):
        for query in (" ", "x" * 4_001):
            reply = server.post(f"/{name}/run", json={"query": query})
            expected = f"query must have 1 to 4000 characters, got {len(query)}"
            assert (reply.status_code, reply.json()["detail"]) == (422, expected)


def test_chat_without_a_model_gives_the_passages_with_a_note(server: httpx.Client):
    client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none")
    reply = client.chat.completions.create(model="chat", messages=ASKED).choices[0].message.content
    assert reply.startswith("No chat model is configured")
    assert ANSWER in reply
    assert "[1] " in reply.split("Sources:")[1]


def test_what_no_one_can_read_is_refused(server: httpx.Client):
    for path, body in [
        ("/retrieve/run", r'{"query": "half \ud800"}'),
        ("/self_query/run", r'{"query": "half \ud800"}'),
        ("/packed/run", r'{"query": "half", "half \ud800": 1}'),
        ("/parent/run", r'{"query": ["half \ud800"]}'),
        ("/chat/completions", r'{"model": "chat", "messages": [{"role": "user", "content": "half \ud800"}]}'),
        ("/index_texts/run", r'{"texts": [{"source_id": "half", "content": "\ud800"}]}'),
        ("/index_texts/run", '{"texts": [{"source_id": "nan", "content": "x", "meta": {"a": NaN}}]}'),
    ]:
        reply = server.post(path, content=body, headers={"content-type": "application/json"})
        assert (reply.status_code, "cannot be read" in reply.text) == (422, True)


def test_a_pattern_that_needs_a_model_says_how_to_configure_one(server: httpx.Client):
    reply = server.post("/retrieve/run", json={"query": QUESTION, "pattern": "reranked"})
    assert (reply.status_code, "OPENAI_API_KEY" in reply.text) == (503, True)
    for name in NEED_A_MODEL:
        reply = server.post(f"/{name}/run", json={"query": QUESTION})
        assert (reply.status_code, "OPENAI_API_KEY" in reply.text) == (503, True)


@pytest.mark.parametrize(
    ("path", "unknown", "said"),
    [
        ("parent", {"filters": {}, "a": 1}, "parent takes query, got a, filters"),
        ("retrieve", {"topk": 1}, "retrieve takes query, pattern, filters, top_k, max_length, got topk"),
    ],
)
def test_a_field_that_a_pipeline_does_not_take_is_refused(server: httpx.Client, path: str, unknown: dict, said: str):
    reply = server.post(f"/{path}/run", json={"query": QUESTION} | unknown)
    assert (reply.status_code, reply.json()) == (422, {"detail": said})


@pytest.mark.parametrize("kind", ["Application/JSON", "application/vnd.api+json", "application/json; charset=utf-8"])
def test_a_field_is_refused_however_the_request_calls_its_json(server: httpx.Client, kind: str):
    body = b'{"query": "refunds", "filter": {}}'
    assert server.post("/packed/run", content=body, headers={"content-type": kind}).status_code == 422


def test_a_pdf_and_a_markdown_file_are_found_by_every_pattern(server: httpx.Client, handbook: Path):
    files = [
        ("files", ("moon.md", b"# Moon base\nThe moon base opens in 2031. This needs a permit of the lunar bureau.")),
        ("files", ("warranty-uploaded.pdf", (handbook / "warranty.pdf").read_bytes())),
        ("files", ("broken.pdf", b"%PDF-1.4 nothing")),
    ]
    report = server.post("/index/run", files=files, data={"meta": '{"planet": "moon"}'}).json()["result"]
    assert (report["added"], list(report["failures"])) == (2, ["broken.pdf"])
    uploaded = {"field": "meta.planet", "operator": "==", "value": "moon"}
    for pattern in set(PATTERNS) - NEED_A_MODEL:
        for query, source in [("When does the moon base open?", "moon.md"), ("warranty", "warranty-uploaded.pdf")]:
            best = found_by(server, query, pattern=pattern, filters=uploaded)[0]
            assert (pattern, best["source"], best["meta"]["planet"]) == (pattern, source, "moon")
    assert server.post("/undeploy/moon.md").status_code == 403


def test_texts_are_added_and_replaced(server: httpx.Client):
    def text(content: str) -> dict:
        return server.post(
            "/index_texts/run", json={"texts": [{"source_id": "mars", "content": content, "meta": {"planet": "mars"}}]}
        ).json()["result"]

    assert text("The base on Mars opens in 2041.")["added"] == 1
    assert text("The base on Mars opens in 2042.")["updated"] == 1
    (found,) = found_by(server, "When does the base on Mars open?", pattern="window", top_k=1)
    assert (found["content"], found["source"]) == ("The base on Mars opens in 2042.", "mars")
    twice = {"texts": [{"source_id": "twice", "content": "one"}, {"source_id": "twice", "content": "two"}]}
    report = server.post("/index_texts/run", json=twice).json()["result"]
    assert (report["added"], "only the first" in report["failures"]["twice"]) == (1, True)


def test_an_upload_cannot_leave_the_index_or_break_it(server: httpx.Client):
    for name in ("../../etc/escape.md", "C:\\temp\\escape.md"):
        report = server.post("/index/run", files=[("files", (name, f"# Escape of {name}".encode()))])
        assert report.status_code == 200
        assert found_by(server, "Escape", top_k=1)[0]["source"] == "escape.md"
    for name, data, reason in [
        ("virus.exe", b"MZ", "not supported"),
        ("latin.md", b"caf\xe9", "utf-8"),
        ("empty.pdf", b"", "no text"),
        ("broken.docx", b"PK\x03\x04", "no text"),
        ("..", b"x", "no name"),
    ]:
        refused = server.post("/index/run", files=[("files", (name, data))])
        assert (name, refused.status_code, reason in refused.text) == (name, 422, True)
    assert server.post("/index/run", files=[], data={"meta": "{}"}).status_code == 422
    assert server.post("/index/run", files=[("files", ("a.md", b"a"))], data={"meta": "[]"}).status_code == 422


def test_callers_cannot_have_files_of_the_server_read(server: httpx.Client, handbook: Path):
    paths = [str(handbook / "travel.md"), "/etc/hosts.md", "../travel.md"]
    result = server.post("/indexing/run", json={"sources": paths}).json()["result"]
    assert result["reader"]["documents"] == []
    assert [failure["reason"] for failure in result["reader"]["failed"]] == ["files from here may not be read"] * 3


def test_code_cannot_be_deployed_and_a_request_has_a_size(server: httpx.Client):
    assert server.post("/deploy-yaml", json={"name": "x", "source_code": "components: {}"}).status_code == 403
    assert server.post("/deploy_files/", json={}).status_code == 403
    assert server.post("/undeploy/parent").status_code == 403
    large = b"x" * 60_000_000
    assert server.post("/retrieve/run", content=large).status_code == 413
    assert server.post("/retrieve/run", content=iter([large])).status_code == 413  # without a length


def test_many_clients_at_once_get_whole_and_current_answers(server: httpx.Client):
    def work(client: int) -> None:
        with httpx.Client(base_url=server.base_url, timeout=120) as own:
            for version in range(1, 3):
                text = f"Client {client} keeps a heron. The heron of client {client} has {version} eggs."
                upload = [("files", (f"heron-{client}.md", text.encode()))]
                report = own.post("/index/run", files=upload).json()["result"]
                assert (report["added"] + report["updated"], report["failures"]) == (1, {})
                mine = {"field": "meta.source_id", "operator": "==", "value": f"heron-{client}.md"}
                for pattern in ("window", "parent"):
                    query = f"How many eggs has the heron of client {client}?"
                    for found in found_by(own, query, pattern=pattern, filters=mine):
                        start, end = found["span"]
                        assert found["content"] == text[start:end]
                name = sorted({PATTERNS[pattern] for pattern in PATTERNS} - NEED_A_MODEL)[client % 7]
                assert any(
                    ANSWER in content for content in contents(own.post(f"/{name}/run", json={"query": QUESTION}))
                )

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))


def test_plain_hayhooks_starts_every_pipeline_of_its_folder(hayhooks: httpx.Client):
    assert set(hayhooks.get("/status").json()["pipelines"]) >= EVERYTHING
    assert len(found_by(hayhooks, QUESTION, pattern="merge")) == 2, "wrappers run the pipelines beside them"


def test_each_yaml_deploys_as_it_is_and_all_answer_at_once(
    hayhooks: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from hayhooks.cli.base import hayhooks_cli
    from hayhooks.settings import settings

    monkeypatch.setattr(settings, "host", "127.0.0.1")
    monkeypatch.setattr(settings, "port", hayhooks.base_url.port)
    for path in sorted(pipelines_folder().glob("*.yml")):
        command = ["pipeline", "deploy-yaml", str(path), "--name", f"{path.stem}-deployed", "--no-save-file"]
        result = CliRunner().invoke(hayhooks_cli, command)
        assert result.exit_code == 0, result.output
    assert set(hayhooks.get("/status").json()["pipelines"]) >= {f"{name}-deployed" for name in YAML}

    def ask(name: str) -> list[str]:
        return contents(hayhooks.post(f"/{name}-deployed/run", json={"query": QUESTION}))

    new = tmp_path / "new.md"
    new.write_text("# Herons\n\nA heron stands in the water.")
    with ThreadPoolExecutor(8) as pool:
        indexed = pool.submit(hayhooks.post, "/indexing-deployed/run", json={"sources": [str(new)]})
        for texts in pool.map(ask, sorted(YAML - {"indexing"}) * 3):
            assert any(ANSWER in text for text in texts)
    assert indexed.result().json()["result"]["writer"]["report"]["added"] == 1


def test_chat_cites_its_sources_streaming_and_not(hayhooks: httpx.Client):
    client = OpenAI(base_url=f"{hayhooks.base_url}/v1", api_key="none")
    whole = client.chat.completions.create(model="chat", messages=ASKED).choices[0].message.content
    pieces = client.chat.completions.create(model="chat", messages=ASKED, stream=True)
    streamed = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert len(streamed) > 5
    for reply in (whole, "".join(streamed)):
        assert reply.startswith("It takes 14 days [1], not 30 [99].")
        assert "[1, 2, 3]" not in reply, "the words of helper models stay inside"
        cited = reply.split("Sources:")[1]
        assert "[1] " in cited
        assert "[99]" not in cited


def test_a_conversation_goes_to_the_model_and_no_question_is_a_422(
    hayhooks: httpx.Client, model_of_hayhooks: ChatServer
):
    said = [{"role": "user", "content": "Hello heron"}, {"role": "assistant", "content": "Hello."}]
    model_of_hayhooks.requests.clear()

    def chat(messages: list[dict], stream: bool) -> httpx.Response:
        return hayhooks.post("/v1/chat/completions", json={"model": "chat", "messages": messages, "stream": stream})

    assert chat([*said, *ASKED], False).status_code == 200
    last = model_of_hayhooks.requests[-1]["messages"]
    assert [message["content"] for message in last[:2]] == ["Hello heron", "Hello."]
    for stream in (False, True):
        reply = chat(said[1:], stream)
        assert (reply.status_code, "question of the user" in reply.text) == (422, True)


def test_a_chat_whose_model_fails_gives_the_passages_and_no_secret(
    hayhooks: httpx.Client, model_of_hayhooks: ChatServer, monkeypatch: pytest.MonkeyPatch
):
    refusal = Answer("Incorrect key a-secret-key in /srv/keys.txt", status=401)
    monkeypatch.setattr(model_of_hayhooks, "_script", [refusal])
    client = OpenAI(base_url=f"{hayhooks.base_url}/v1", api_key="none")
    whole = client.chat.completions.create(model="chat", messages=ASKED).choices[0].message.content
    pieces = client.chat.completions.create(model="chat", messages=ASKED, stream=True)
    for reply in (whole, "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)):
        assert reply.startswith("The chat model failed; these are the passages")
        assert ANSWER in reply
        assert "secret" not in reply + hayhooks.post("/retrieve/run", json={"query": "x", "pattern": "full"}).text


def test_a_server_killed_while_it_indexes_has_no_half_indexed_source_when_it_is_back(
    handbook_index: Path, tmp_path: Path
):
    log = tmp_path / "log"

    def upload(paragraphs: int) -> list[tuple[str, tuple[str, bytes]]]:
        text = "\n\n".join(f"Paragraph {n} is about pottery. It has a second sentence." for n in range(paragraphs))
        return [("files", ("long.md", text.encode()))]

    def has_blocks(index: Path, since: float) -> bool:  # they are written before the leaves
        written = (path for path in index.rglob("*") if path.is_file() and path.stat().st_mtime > since)
        return any(b"Paragraph 7 is" in path.read_bytes() for path in written)

    for attempt in range(3):  # the machine may be slow to kill
        index = tmp_path / f"index {attempt}"
        shutil.copytree(handbook_index, index)
        with ThreadPoolExecutor(1) as pool, served(index, log) as server:
            started = time.time()
            sent = pool.submit(server.post, "/index/run", files=upload(500))
            while not has_blocks(index, started) and not sent.done():
                time.sleep(0.01)
        store = QdrantEdgeDocumentStore(str(index))
        unfinished = status(store).unfinished
        store.close()
        if unfinished:
            break
    assert unfinished == ["long.md"]

    with served(index, log) as server:
        found = found_by(server, "pottery", pattern="window", top_k=100)
        assert "long.md" not in {document["source"] for document in found}
        report = server.post("/index/run", files=upload(50)).json()["result"]
        assert (report["added"], report["failures"]) == (1, {})
        found = found_by(server, "Paragraph 49 pottery", pattern="window")
        assert any("Paragraph 49" in document["content"] for document in found)
    store = QdrantEdgeDocumentStore(str(index))
    assert not status(store).drift
    check_trees(store)
    store.close()


def test_tools_of_an_mcp_server_return_json_and_their_errors_tell_nothing(handbook_index: Path, tmp_path: Path):
    pytest.importorskip("mcp")
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    shutil.copytree(handbook_index, tmp_path / "index")
    shutil.copytree(pipelines_folder(), tmp_path / "pipelines")

    async def use(url: str) -> None:
        async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert {"retrieve", "index_texts"} <= set(tools)
            assert not {"index", "chat"} & set(tools)
            assert "compressed" in tools["retrieve"].inputSchema["properties"]["pattern"]["description"]

            async def call(name: str, **arguments: object) -> tuple[bool, str]:
                result = await session.call_tool(name, arguments)
                return result.isError, result.content[0].text

            failed, text = await call("retrieve", query=QUESTION, pattern="window")
            assert any(ANSWER in document["content"] for document in json.loads(text)["documents"])
            failed, text = await call("index_texts", texts=[{"source_id": "moon", "content": "The moon base opens."}])
            assert json.loads(text)["added"] == 1
            assert not failed
            assert "moon base" in (await call("retrieve", query="moon base", top_k=1))[1]
            for arguments, reason in [
                ({"query": QUESTION, "pattern": "magic"}, "pattern must be one of"),
                ({"query": QUESTION, "pattern": "reranked"}, "set OPENAI_API_KEY"),
                ({"query": QUESTION, "filters": {"field": "meta.a"}}, "filters"),
            ]:
                failed, text = await call("retrieve", **arguments)
                assert (failed, reason in text) == (True, True)
                assert "Traceback" not in text
                assert str(tmp_path) not in text

    with run_hayhooks(["mcp", "run"], tmp_path / "index", tmp_path, OPENAI_API_KEY="") as client:
        asyncio.run(use(f"{client.base_url}/mcp/"))


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
