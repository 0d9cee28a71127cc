"""Every snippet of the README runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from haystack import Pipeline
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore
from typer.testing import CliRunner

from haystack_adv_retrieval.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    re.split(r"\s+#", line)[0]
    for language, block in BLOCKS
    if not language
    for line in block.splitlines()
    if line.startswith("adv-retrieval")
]


@pytest.fixture(scope="module")
def workplace(handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README's commands name, the example handbook among it."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "examples").mkdir()
    shutil.copytree(handbook, folder / "examples" / "handbook")
    (folder / "docs").mkdir()
    (folder / "docs" / "old.md").write_text("# Old\nThis is an old page about refunds.\n")
    quote = "Refunds are paid within 14 days of this."
    question = '{"question": "When is the refund for a station paid (%d)?", "source": "refunds.md", "quotes": ["%s"]}\n'
    (folder / "questions.jsonl").write_text("".join(question % (number, quote) for number in range(4)))
    return folder


def blocks(language: str) -> list[str]:
    return [block for name, block in BLOCKS if name == language]


def test_the_python_snippets_run(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(workplace)
    for snippet in blocks("python"):
        exec(compile(snippet, "README", "exec"), {})
    out = capsys.readouterr().out
    assert "IndexReport(added=1" in out
    assert "travel costs {'operator': 'AND'" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(workplace)
    arguments = shlex.split(command)[1:]
    if arguments[0] == "serve":  # started by the tests of serving
        arguments = [arguments[0], "--help"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"


def test_the_pipeline_in_yaml_loads():
    pipeline, _ = blocks("yaml")
    loaded = Pipeline.loads(pipeline, allowed_modules=["haystack_adv_retrieval"])
    assert set(loaded.graph.nodes) == {"embedder", "retriever", "expander"}


def test_the_configuration_of_a_qdrant_server_is_understood():
    _, store = blocks("yaml")
    parameters = yaml.safe_load(store)["document_store"]["init_parameters"]
    assert QdrantDocumentStore(**parameters).url == "http://localhost:6333"


def test_every_pipeline_and_component_is_mentioned():
    import haystack_adv_retrieval

    for path in (ROOT / "pipelines").glob("*.yml"):
        assert path.name in README
    for name in haystack_adv_retrieval.__all__:
        if name[0].isupper() and hasattr(getattr(haystack_adv_retrieval, name), "run"):
            assert f"`{name}`" in README
