"""What every test has: no network for models, no telemetry, the package on the allow-list, a scripted chat server."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import servers
from haystack.core.serialization_security import allow_deserialization_module
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import HealthCheck, settings
from scripted_chat_server import ChatServer

allow_deserialization_module("haystack_adv_retrieval")

# A machine that is busy with something else is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Haystack's in-memory store waits for its thread when it is collected. Where the collector runs while a lock of
# `threading` is held, that thread cannot end, and the wait has none either.
InMemoryDocumentStore.__del__ = lambda store: store.executor.shutdown(wait=False)

ROOT = Path(__file__).parent.parent
# Small enough to be indexed in seconds, with Markdown, a PDF and metadata among them.
HANDBOOK_FILES = ("refunds.md", "travel.md", "quarter-2024-q3.md", "warranty.pdf")


@pytest.fixture(scope="session")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a part of the example handbook."""
    folder = tmp_path_factory.mktemp("handbook")
    whole = ROOT / "examples" / "handbook"
    for name in HANDBOOK_FILES:
        shutil.copy(whole / name, folder)
    lines = (whole / "metadata.jsonl").read_text().splitlines()
    (folder / "metadata.jsonl").write_text(
        "\n".join(line for line in lines if json.loads(line)["file"] in HANDBOOK_FILES)
    )
    return folder


@pytest.fixture(scope="session")
def handbook_index(handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of that folder with summaries, made by the command line in a process of its own."""
    index = tmp_path_factory.mktemp("index") / "handbook"
    command = [sys.executable, "-m", "haystack_adv_retrieval.cli", "index", str(handbook), "--to", str(index)]
    subprocess.run([*command, "--summaries", "extractive"], check=True)
    return index


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for indexes of many small writes: flushing them costs nothing there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """A real chat server that says what the test scripts."""
    server = ChatServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def server(handbook_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """`adv-retrieval serve` over a copy of the handbook's index, without a chat model."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(handbook_index, folder / "index")
    with servers.served(folder / "index", folder / "log") as client:
        yield client


@pytest.fixture(scope="session")
def model_of_hayhooks() -> Iterator[ChatServer]:
    """The chat model of the server `hayhooks`. It ranks when it is shown candidates, and answers a question."""

    def reply(request: dict) -> str:
        prompt = json.dumps(request["messages"])
        return "It takes 14 days [1], not 30 [99]." if "numbered passages" in prompt else "[1, 2, 3]"

    model = ChatServer()
    model.script(reply)
    yield model
    model.stop()


@pytest.fixture(scope="session")
def hayhooks(
    handbook_index: Path, tmp_path_factory: pytest.TempPathFactory, model_of_hayhooks: ChatServer
) -> Iterator[httpx.Client]:
    """Plain `hayhooks run` beside a copy of the folder of the pipelines, one of them edited, with a chat model."""
    folder = tmp_path_factory.mktemp("hayhooks")
    shutil.copytree(handbook_index, folder / "index")
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    edited = folder / "pipelines" / "auto_merging.yml"
    edited.write_text(edited.read_text(encoding="utf-8").replace("top_k: 10", "top_k: 2"), encoding="utf-8")
    model = {"OPENAI_API_KEY": "a-secret-key", "OPENAI_BASE_URL": model_of_hayhooks.url}
    with servers.hayhooks(["run"], folder / "index", folder, **model) as client:
        yield client
