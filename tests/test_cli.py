"""The command line, as a user calls it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from haystack_adv_retrieval.cli import app


def call(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def data(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(call(*arguments, "--json", code=code).stdout.splitlines()[-1])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "tea.md").write_text("# Tea\nTea needs four minutes. This is for black tea.\n")
    (folder / "deep" / "rye.txt").write_bytes(b"Rye bread keeps a week.\r\nWheat bread keeps two days.\r\n")
    (folder / "metadata.jsonl").write_text('{"file": "tea.md", "meta": {"kind": "drink", "by": "A\u2028B"}}\n')
    (folder / ".hidden.md").write_text("Nobody sees this.")
    return folder


def test_a_folder_is_indexed_asked_changed_and_forgotten(notes: Path, tmp_path: Path):
    index = tmp_path / "index"
    report = data("index", notes, "--to", index)
    assert (report["added"], report["skipped"], report["failures"]) == (2, 0, {})
    assert report["leaves_embedded"] == 5

    found = data("query", "How long does black tea take?", "--from", index, "--pattern", "window", "--top-k", "1")
    (document,) = found["documents"]
    assert "four minutes" in document["content"]
    assert document["meta"]["source_id"] == (notes / "tea.md").as_posix()
    assert [document["meta"][key] for key in ("kind", "by", "headings")] == ["drink", "A\u2028B", "Tea"]

    again = data("index", notes, "--to", index)
    assert (again["added"], again["updated"], again["skipped"], again["leaves_embedded"]) == (0, 0, 2, 0)

    (notes / "tea.md").write_text("# Tea\nTea needs four minutes. Green tea needs two. This is for black tea.\n")
    changed = data("index", notes, "--to", index)
    assert (changed["updated"], changed["skipped"], changed["leaves_embedded"]) == (1, 1, 1)

    (notes / "deep" / "rye.txt").unlink()
    assert data("index", notes, "--to", index)["deleted"] == 0
    assert data("index", notes, "--to", index, "--delete-missing")["deleted"] == 1
    status = data("status", "--from", index)
    assert (status["sources"], status["stale"], status["unfinished"]) == (1, 0, [])
    assert data("delete", notes / "tea.md", "--from", index)["deleted"] == [str(notes / "tea.md")]
    assert data("prune", "--from", index)["chunks_deleted"] == 0
    assert call("query", "tea", "--from", index).stdout.strip() == "Nothing was found."


def test_what_cannot_be_read_is_named_and_the_rest_is_indexed(notes: Path, tmp_path: Path):
    (notes / "broken.pdf").write_bytes(b"%PDF-1.4 nothing more")
    (notes / "latin.txt").write_bytes("Öl".encode("latin-1"))
    index = tmp_path / "index"
    report = data("index", notes, notes / "absent.md", "--to", index, code=1)
    assert report["added"] == 2
    assert {Path(name).name for name in report["failures"]} == {"broken.pdf", "latin.txt", "absent.md"}


def test_files_of_unknown_types_are_counted(notes: Path, tmp_path: Path):
    for name in ("a.png", "deep/b.PNG", "LICENSE", ".hidden.png"):
        (notes / name).write_bytes(b"\0")
    options = ["index", notes, "--to", tmp_path / "index"]
    assert data(*options)["passed_over"] == {".png": 2, "": 1}
    shown = " ".join(call(*options).stdout.split())
    assert "1 without a suffix, 2 .png" in shown
    assert data(*options, notes / "deep", notes / "LICENSE", code=1)["passed_over"] == {".png": 2}


def test_an_index_of_nothing_is_not_made(notes: Path, tmp_path: Path):
    (notes / "a.png").write_bytes(b"\0")
    for pattern in ("*.rst", "*.png"):
        result = call("index", notes, "--include", pattern, "--to", tmp_path / "index", code=1)
        assert "matches --include" in str(result.exception)
    for name in ("tea.md", "deep/rye.txt"):
        (notes / name).unlink()
    result = call("index", notes, "--to", tmp_path / "index", code=1)
    assert str(result.exception) == f"no file of a type that can be read is in {notes}"
    assert not (tmp_path / "index").exists()


def test_a_folder_that_became_empty_deletes_nothing_by_itself(notes: Path, tmp_path: Path):
    index = tmp_path / "index"
    data("index", notes, "--to", index)
    (notes / "deep" / "rye.txt").unlink()
    report = data("index", notes / "deep", "--to", index, "--delete-missing")
    assert (report["deleted"], report["failures"], len(report["notes"])) == (0, {}, 1)
    assert data("index", notes, "--to", index, "--delete-missing")["deleted"] == 1


def test_names_in_brackets_are_shown_as_they_are(notes: Path, tmp_path: Path):
    (notes / "a.[b]").write_bytes(b"\0")
    shown = call("index", notes, "absent[", "absent[/b]", "--to", tmp_path / "index", code=1).stdout
    assert "absent[/b]: no file matches" in " ".join(shown.split())
    assert "1 .[b]" in shown
    (notes / "x[b].md").write_text("# The [/b] tag\nIt ends what is bold.\n")
    call("index", notes, "--to", tmp_path / "index")
    shown = "".join(
        call("query", "What ends bold?", "--from", tmp_path / "index", "--pattern", "window").stdout.split()
    )
    assert "x[b].md" in shown
    assert "The[/b]tag" in shown
    assert "absent[/b]" in call("delete", "absent[/b]", "--from", tmp_path / "index", code=1).stdout


def test_a_file_that_cannot_be_read_any_more_is_kept(notes: Path, tmp_path: Path):
    index = tmp_path / "index"
    data("index", notes, "--to", index)
    (notes / "tea.md").write_bytes(b"\xff\xfe\xfa")
    report = data("index", notes, "--to", index, "--delete-missing", code=1)
    assert report["deleted"] == 0
    assert data("status", "--from", index)["sources"] == 2


@pytest.mark.parametrize("broken", [b'{"file": "tea.md", "meta"', b"\xff", b'{"file": "tea.md", "meta": 3}'])
def test_a_broken_line_of_metadata_takes_nothing_from_the_files_it_may_be_about(
    broken: bytes, notes: Path, tmp_path: Path
):
    index = tmp_path / "index"
    (notes / "deep" / "metadata.jsonl").write_text('{"file": "rye.txt", "meta": {"kind": "food"}}')
    data("index", notes, "--to", index)
    (notes / "metadata.jsonl").write_bytes(broken + b'\n{"file": "oat.md", "meta": {"kind": "new"}}\n')
    (notes / "oat.md").write_text("Oat cakes keep a month.")
    (notes / "deep" / "nut.md").write_text("Nuts keep a year.")
    report = data("index", notes, "--to", index, "--delete-missing", code=1)
    assert (report["added"], report["updated"], report["skipped"], report["deleted"]) == (1, 0, 1, 0)
    assert report["failures"].keys() == {str(notes / name) for name in ("metadata.jsonl:1", "tea.md", "deep/nut.md")}
    found = data("query", "How long does black tea take?", "--from", index, "--pattern", "window", "--top-k", "1")
    assert found["documents"][0]["meta"]["kind"] == "drink"
    assert "metadata.jsonl:1" in str(call("index", notes / "tea.md", "--to", index, code=1).exception)


@pytest.mark.parametrize("line", ['{"file": "%s", "meta": {}}' % ("n" * 300), "[" * 100_000])
def test_a_line_of_metadata_that_nothing_can_read_does_not_end_the_run(line: str, notes: Path, tmp_path: Path):
    with (notes / "metadata.jsonl").open("a") as file:
        file.write(line)
    report = data("index", notes, "--to", tmp_path / "index", code=1)
    assert report["added"] == 1  # the file with a line of its own
    assert f"{notes / 'metadata.jsonl'}:2" in report["failures"]


def test_a_line_of_metadata_about_no_file_is_named(notes: Path, tmp_path: Path):
    (notes / "metadata.jsonl").write_text('\n{"file": "teas.md", "meta": {"kind": "drink"}}\n')
    report = data("index", notes, "--to", tmp_path / "index", "--include", "*.md", code=1)
    assert report["added"] == 1
    ((line, reason),) = report["failures"].items()
    assert (line, "teas.md" in reason) == (str(notes / "metadata.jsonl:2"), True)


def test_metadata_does_not_name_the_source(notes: Path, tmp_path: Path):
    (notes / "metadata.jsonl").write_text('{"file": "tea.md", "meta": {"source_id": "tea"}}')
    (notes / "deep" / "metadata.jsonl").write_text('{"file": "rye.txt", "meta": {"kind": "food"}}')
    report = data("index", notes, "--to", tmp_path / "index", code=1)
    assert report["added"] == 1
    assert "source_id" in report["failures"][str(notes / "metadata.jsonl:1")]


def test_patterns_and_settings_choose_what_is_indexed(notes: Path, tmp_path: Path):
    index = tmp_path / "index"
    assert data("index", notes, "--to", index, "--include", "*.txt")["added"] == 1
    assert data("index", f"{notes}/*.md", "--to", index)["added"] == 1
    report = data("index", notes, "--to", index, "--set", "splitter.block_sizes=[6, 3]")
    assert report["updated"] == 2
    assert data("index", notes, "--to", index, "--namespace", "mine")["added"] == 2
    assert data("status", "--from", index)["namespaces"] == {"": 2, "mine": 2}


def test_summaries_are_indexed_with_their_sections(notes: Path, tmp_path: Path):
    index = tmp_path / "index"
    data("index", notes, "--to", index)
    data("index", notes, "--to", index, "--summaries", "extractive")
    assert data("status", "--from", index)["summaries"] == 2
    options = ["--to", index, "--set", "summarizer.sentences=1"]
    assert data("index", notes, *options, "--summaries", "extractive")["updated"] == 2  # other settings make others
    call("index", notes, *options, code=1)


@pytest.mark.parametrize("pattern", ["parent", "window", "merge", "packed", "compressed", "summary", "self-query"])
def test_every_pattern_shows_what_was_found(pattern: str, handbook_index: Path):
    question = "How many days does it take until the refund for a station is paid?"
    shown = call("query", question, "--from", handbook_index, "--pattern", pattern).stdout
    assert "refunds.md" in shown
    assert "found Refunds are paid within 14 days of this. read" in " ".join(shown.split())


def test_self_querying_shows_what_was_filtered_and_what_was_searched(handbook_index: Path):
    shown = call("query", "What do reports of 2024 say about revenue?", "--from", handbook_index, "--self-query").stdout
    top = " ".join(shown.split("\n1 ")[0].split())
    report, year = (
        {"field": f"meta.{k}", "operator": "==", "value": v} for k, v in (("type", "report"), ("year", 2024))
    )
    assert top == f"searched revenue filter {json.dumps({'operator': 'AND', 'conditions': [report, year]})}"
    assert "quarter-2024-q3.md" in shown


def test_self_querying_tells_when_a_filter_had_to_be_relaxed(handbook_index: Path):
    shown = call("query", "policies of 2019 about travel costs", "--from", handbook_index, "--self-query").stdout
    top = " ".join(shown.split("\n1 ")[0].split())
    assert top.startswith('searched travel costs filter {"field": "meta.type"')
    assert "relaxed since nothing was found with" in top
    assert "travel.md" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "x", "--from", "nowhere"], "There is no index in nowhere"),
        (["query", "x", "--from", "no\udcff"], "There is no index in no\\udcff"),
        (["status", "--from", "."], "There is no index in ."),
        (["query", " ", "--from", "INDEX"], "question must not be empty"),
        (["index", "absent.md", "*.rst", "--to", "new"], "absent.md: there is no such file or folder; *.rst: no file"),
        (["index", "notes", "", "--to", "new"], "paths must not be empty, got ['notes', '']"),
        (["query", "x", "--from", "INDEX", "--pattern", "parents"], "There is no pipeline 'parents'"),
        (["query", "x", "--from", "INDEX", "--filter", "{"], "--filter must be JSON"),
        (
            ["query", "x", "--from", "INDEX", "--filter", '{"field": "meta.a", "operator": "~", "value": 1}'],
            "operator '~'",
        ),
        (["query", "x", "--from", "INDEX", "--set", "top_k"], "component.parameter=value"),
        (["query", "x", "--from", "INDEX", "--set", "packer.scales=[6"], "--set packer.scales must be YAML, got '[6'"),
        (["query", "x", "--from", "INDEX", "--pattern", "hello.yml"], "hello.yml is no pipeline: it has no components"),
        (["query", "x", "--from", "INDEX", "--pattern", "broken.yml"], "broken.yml is not YAML: "),
        (["index", "a.md", "--to", "a.md"], "File exists: "),
        (["eval", "--questions", "latin.jsonl", "--from", "INDEX"], "latin.jsonl is not UTF-8: "),
        (["query", "x", "--from", "INDEX", "--set", "retriever.top_k.x=1"], "'top_k' has no parameters"),
        (["query", "x", "--from", "INDEX", "--set", "packer.nope=1"], "unexpected keyword argument 'nope'"),
        (
            ["index", "a.md", "--to", "new", "--set", "splitter.block_sizes=[6,60]"],
            "block_sizes must go from coarse to fine",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    handbook_index: Path,
    tmp_path: Path,
):
    from haystack_adv_retrieval import cli

    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("Tea.", encoding="utf-8")
    Path("hello.yml").write_text("hello", encoding="utf-8")
    Path("broken.yml").write_text("components: [", encoding="utf-8")
    Path("latin.jsonl").write_bytes(b'{"question": "\xe9"}')
    arguments = [str(handbook_index) if argument == "INDEX" else argument for argument in arguments]
    monkeypatch.setattr("sys.argv", ["adv-retrieval", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "new" / "shard").exists()


def test_an_index_in_use_by_another_process_is_explained(handbook_index: Path, tmp_path: Path):
    import subprocess
    import sys

    index = tmp_path / "index"
    shutil.copytree(handbook_index, index)
    holder = (
        "import sys; from haystack_adv_retrieval import QdrantEdgeDocumentStore as S; s = S(sys.argv[1]);"
        "s.count_documents(); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        result = CliRunner().invoke(app, ["status", "--from", str(index)])
        assert "adv-retrieval serve" in str(result.exception)
        process.kill()


def test_a_server_that_is_told_to_end_waits_only_seconds_for_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    uvicorn = pytest.importorskip("uvicorn")
    options: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda _server, **given: options.update(given))
    monkeypatch.setattr("haystack_adv_retrieval.serving.app.make_app", lambda *_, **__: None)
    call("serve", "--from", tmp_path / "index")
    assert options["timeout_graceful_shutdown"] == 10
