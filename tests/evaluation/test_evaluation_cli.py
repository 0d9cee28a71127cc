import json

import pytest
import typer
from haystack import Document
from typer.testing import CliRunner

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.evaluation.cli import read_strategies, register
from haystack_adv_retrieval.evaluation.indexes import build_index, fixed_size_baseline, read_sources
from haystack_adv_retrieval.evaluation.questions import load_questions, save_questions


@pytest.fixture(scope="module")
def index(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    documents = [Document(content=text, meta={"source_id": source, "year": 2024}) for source, text in sources.items()]
    build_index(documents, folder, {"splitter.block_sizes": [30, 12]})
    return folder


@pytest.fixture
def labelled(questions, tmp_path):
    save_questions(tmp_path / "q.jsonl", questions)
    return tmp_path / "q.jsonl"


@pytest.fixture
def command(monkeypatch):
    app = typer.Typer()
    register(app)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def last_line(result):
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_sources_are_read_back_from_the_index_to_the_letter(index, sources):
    documents = read_sources(QdrantEdgeDocumentStore(str(index)))
    assert {one.meta["source_id"]: one.content for one in documents} == sources
    assert {one.meta["year"] for one in documents} == {2024}
    assert {key for one in documents for key in one.meta} == {"source_id", "year"}


def test_the_baseline_finds_fixed_chunks_by_their_embedding(index, tmp_path):
    documents = read_sources(QdrantEdgeDocumentStore(str(index)))
    pipeline = fixed_size_baseline(documents, tmp_path, words=10, top_k=2)
    pipeline.warm_up()
    found = pipeline.run({"embedder": {"text": "What is the price limit of a hotel?"}})["retriever"]["documents"]
    assert len(found) == 2
    assert found[0].meta["source_id"] == "handbook/travel.md"
    assert all(len(one.content.split(" ")) <= 11 for one in found)


def test_eval_prints_scores_and_verdicts_and_writes_the_report(command, index, labelled, tmp_path):
    report = tmp_path / "out.html"
    arguments = ["--strategies", "parent,window", "--budget", 60, "--budget", 200, "--report", report, "--json"]
    result = command("eval", "--questions", labelled, "--from", index, *arguments)
    assert result.exit_code == 0
    assert "R@60" in result.stdout
    assert "window: no difference at this size, recall@200" in result.stdout
    assert "and 200 words there is no difference at this size" in " ".join(result.stdout.split())
    scores = last_line(result)
    assert list(scores["strategies"]) == ["200 words", "parent", "window"]
    assert scores["questions"] == 5
    assert scores["strategies"]["window"]["scores"]["recall@200"] > 0.5
    assert set(scores["strategies"]["window"]["seconds"]) == {"total", "embedder", "retriever", "expander"}
    assert "<svg" in report.read_text("utf-8")


@pytest.mark.parametrize("name", ["eval", "sweep", "questions"])
def test_a_folder_that_is_no_index_stays_as_it_is(command, name, labelled, tmp_path):
    (tmp_path / "empty").mkdir()
    options = {
        "eval": ["--questions", labelled],
        "sweep": ["--questions", labelled, "--try", "expander.window_size=[0]"],
        "questions": ["--to", tmp_path / "drafted.jsonl"],
    }
    with pytest.raises(FileNotFoundError, match=r"There is no index in .*empty"):
        command(name, "--from", tmp_path / "empty", *options[name])
    assert not [*(tmp_path / "empty").iterdir()]


def test_an_index_that_a_strategy_names_has_to_be_there(index, tmp_path):
    (tmp_path / "s.yml").write_text(f"a: {{pipeline: window, index: {tmp_path / 'missing'}}}")
    with pytest.raises(FileNotFoundError, match=r"There is no index in .*missing"):
        read_strategies(str(tmp_path / "s.yml"), index)
    assert not (tmp_path / "missing").exists()


def test_names_and_errors_in_brackets_are_printed_as_they_are(command, index, labelled, tmp_path):
    file = tmp_path / "strategies.yml"
    file.write_text("'[red]a': {pipeline: window, set: {expander.top_k: 1}}\n'[bold]wide[/]': window\n")
    options = ["--strategies", file, "--baseline", "[red]a"]
    printed = command("eval", "--questions", labelled, "--from", index, *options).stdout
    assert "[bold]wide[/]: " in printed
    assert "\n [red]a  " in printed
    tries = ["--try", "pattern=[parent]", "--try", "merger.threshold=['[/]']"]
    printed = command("sweep", "--questions", labelled, "--from", index, *tries).stdout
    assert 'merger.threshold="[/]" (' in printed


def test_strategies_can_be_described_in_a_file(command, index, labelled, tmp_path):
    file = tmp_path / "strategies.yml"
    file.write_text("narrow: {pipeline: window, set: {expander.top_k: 1}}\nwide: window\n")
    options = ["--strategies", file, "--baseline", "narrow", "--json"]
    scores = last_line(command("eval", "--questions", labelled, "--from", index, *options))
    assert list(scores["strategies"]) == ["narrow", "wide"]
    assert scores["strategies"]["narrow"]["context_length"] < scores["strategies"]["wide"]["context_length"]


def test_a_chat_model_can_judge_contexts(command, index, labelled, chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    chat_server.script(lambda body: json.dumps({"relevant_statements": ["x"] * ("hotel" in str(body["messages"]))}))
    options = ["--strategies", "window", "--baseline", "window", "--judge", "--json"]
    result = command("eval", "--questions", labelled, "--from", index, *options)
    assert 0 < last_line(result)["strategies"]["window"]["scores"]["context_relevance"] <= 1
    assert "context relevance" in result.stdout
    assert {request["response_format"]["type"] for request in chat_server.requests} == {"json_object"}


@pytest.mark.parametrize("text", ["a: {pattern: window}", "a: [window]", "a: {pipeline: window, sets: {}}"])
def test_a_strategy_that_is_not_understood_is_named(index, tmp_path, text):
    (tmp_path / "s.yml").write_text(text)
    with pytest.raises(ValueError, match="'a' must be a pattern or have the keys pipeline, set and index"):
        read_strategies(str(tmp_path / "s.yml"), index)


def test_sweep_tries_settings_of_query_and_index(command, index, labelled):
    tries = ["--try", "expander.window_size=[0,2]", "--try", "index.splitter.block_sizes=[[40,20]]", "--seed", 3]
    result = command("sweep", "--questions", labelled, "--from", index, *tries, "--budget", 80, "--json")
    found = last_line(result)
    assert found["metric"] == "recall@80"
    assert [len(trial["settings"]) for trial in found["trials"]].count(2) == 2
    assert found["held_out"]["questions"] == 2
    assert "Best on 3 questions" in result.stdout


def test_sweep_compares_patterns_and_skips_settings_that_one_lacks(command, index, labelled):
    tries = ["--try", "pattern=[parent,merge]", "--try", "merger.threshold=[0.3]"]
    found = last_line(command("sweep", "--questions", labelled, "--from", index, *tries, "--json"))
    errors = {trial["settings"].get("pattern"): trial["error"] for trial in found["trials"]}
    assert errors["merge"] is errors[None] is None
    assert "merger.threshold" in errors["parent"]


def test_sweep_wants_lists_of_values(command, index, labelled):
    with pytest.raises(ValueError, match=r"--try must look like component.parameter=\[value, value\]"):
        command("sweep", "--questions", labelled, "--from", index, "--try", "expander.window_size=3")


def test_questions_are_drafted_into_a_file_and_added_to_it(command, index, sources, chat_server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    draft = {"question": "How much holiday does a colleague get?", "quotes": ["Everyone has 28 days of leave a year."]}
    chat_server.script(lambda body: json.dumps({"questions": [draft] if "28 days" in str(body) else []}))
    file = tmp_path / "drafted.jsonl"
    first = last_line(command("questions", "--from", index, "--to", file, "--number", 1, "--json"))
    again = last_line(command("questions", "--from", index, "--to", file, "--number", 1, "--json"))
    assert (first["drafted"], again) == (1, {"drafted": 0, "rejected": {"duplicate": 1}})
    assert [question.drafted for question in load_questions(file, sources)] == [True]
