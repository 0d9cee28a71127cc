"""The command line: index files, ask the index, look after it, serve it, and measure it."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from haystack import Document
from haystack.core.errors import (
    ComponentDeserializationError,
    ComponentError,
    DeserializationError,
    PipelineError,
    PipelineRuntimeError,
)
from haystack.document_stores.errors import DocumentStoreError
from haystack.errors import FilterError
from huggingface_hub.utils.tqdm import disable_progress_bars
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from haystack_adv_retrieval.components.section_summarizer import SectionSummarizer
from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.lineage import extent_of
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.evaluation.cli import register
from haystack_adv_retrieval.indexing.documents import IndexReport, delete_sources, index_documents
from haystack_adv_retrieval.indexing.folders import find_files
from haystack_adv_retrieval.indexing.maintenance import prune, status
from haystack_adv_retrieval.pipelines import DEFAULT_PATTERN, PATTERNS, load_pipeline, retrieve
from haystack_adv_retrieval.terminal import console, is_index, open_index

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

# Haystack's errors about the component in which something else happened.
_AROUND = (ComponentDeserializationError, ComponentError, DeserializationError, PipelineError, PipelineRuntimeError)
# What a wrong option or file ends in, inside a pipeline too.
_ERRORS_OF_USE = (ValueError, OSError, RuntimeError, DocumentStoreError, FilterError, *_AROUND)
# Rich drops these characters; what stands for them keeps every position.
_CONTROLS = {7: " ", 8: " ", 11: " ", 12: "\n", 13: " "}

Index = Annotated[Path, typer.Option("--from", help="Folder of the index.")]
Namespace = Annotated[str | None, typer.Option(help="The collection of sources that this is about.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, on the last line of the output.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting of the pipeline, e.g. splitter.block_sizes=[600,80]."),
]


class Summaries(StrEnum):
    """How summaries of sections are made."""

    extractive = "extractive"
    llm = "llm"


@app.command()
def index(
    paths: Annotated[list[str], typer.Argument(help="Files, folders and glob patterns.")],
    to: Annotated[Path, typer.Option("--to", help="Folder of the index; made if it does not exist.")],
    pipeline: Annotated[str, typer.Option(help="Name or path of the indexing pipeline.")] = "indexing",
    settings: Settings = None,
    include: Annotated[list[str] | None, typer.Option(help="Only files that match this pattern.")] = None,
    namespace: Namespace = None,
    delete_missing: Annotated[
        bool, typer.Option("--delete-missing", help="Delete what the index holds of the folders and they no longer.")
    ] = False,
    reembed: Annotated[bool, typer.Option("--reembed", help="Replace embeddings of another model.")] = False,
    summaries: Annotated[
        Summaries | None,
        typer.Option(help="Also index a summary of each section: its central sentences, or written by the chat model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Bring an index in step with files. What did not change costs nothing.

    Exits with 1 if something could not be read or indexed; everything else is indexed nevertheless. Where there is no
    file of a type that can be read, no index is made.
    """
    started = time.perf_counter()
    found = find_files(paths, include or ["*"])
    # A folder may have become empty since it was indexed, but no index begins with it.
    if not (found.files or (found.scope and is_index(to))):
        reasons = [f"{path}: {reason}" for path, reason in found.failures.items()]
        nothing = "matches --include" if include else f"is in {', '.join(paths)}"
        raise ValueError("; ".join(reasons) or f"no file of a type that can be read {nothing}")
    overrides = _settings(settings)
    if namespace is not None:
        overrides["splitter.namespace"] = namespace
    prefix = "summarizer."
    options = {name.removeprefix(prefix): overrides.pop(name) for name in list(overrides) if name.startswith(prefix)}
    if options and not summaries:
        raise ValueError("--set summarizer... needs --summaries")
    part: Callable[[str], Any] = load_pipeline(pipeline, index=to, overrides=overrides).get_component
    store = part("writer").document_store
    summarizer = summaries and SectionSummarizer(method=summaries.value, document_store=store, **options)
    if summarizer:
        summarizer.warm_up()  # so that a missing key is an error at once, and not one for each source
    keep: set[str] = set()
    with _progress() as progress:
        task = progress.add_task("Indexing", total=len(found.files), leaves=0)

        def show(report: IndexReport) -> None:
            keep.update(found.failures)
            done = report.added + report.updated + report.skipped + len(report.failures)
            progress.update(task, completed=done, leaves=report.leaves_embedded)

        report = index_documents(
            found.documents(part("reader")),
            store,
            part("embedder"),
            part("splitter"),
            summarizer=summarizer,
            reembed=reembed,
            delete_missing=delete_missing,
            scope=found.scope,
            keep=keep,
            progress=show,
        )
    report.failures = found.failures | report.failures
    for source, reason in report.failures.items():
        console.print(Text.assemble(("failed", "red"), f"  {_short(source)}: {reason}"))
    if found.passed_over:
        kinds = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in found.passed_over.items())
        console.print(f"passed over, since files of these types cannot be read: {kinds}")
    seconds = time.perf_counter() - started
    console.print(
        f"{report.added} added, {report.updated} updated, {report.skipped} unchanged, {report.deleted} deleted, "
        f"{len(report.failures)} failed; {report.leaves_embedded} leaves embedded, {report.leaves_reused} reused; "
        f"{seconds:.1f} s"
    )
    if as_json:
        print(json.dumps(asdict(report) | {"passed_over": found.passed_over, "seconds": seconds}))
    if report.failures:
        raise typer.Exit(1)


@app.command()
def delete(
    sources: Annotated[list[str], typer.Argument(help="Sources, as `query` names them.")],
    index: Index,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Delete sources, with everything that belongs to them."""
    prefix = f"{namespace}::" if namespace else ""
    wanted = {prefix + source: source for source in sources}
    wanted |= {prefix + Path(source).resolve().as_posix(): source for source in sources}
    deleted = [wanted[source_id] for source_id in delete_sources(open_index(index), wanted)]
    for source in sources:
        outcome = "deleted" if source in deleted else ("not in the index", "red")
        console.print(Text.assemble(outcome, f"  {source}"))
    if as_json:
        print(json.dumps({"deleted": deleted}))
    if len(set(deleted)) < len(set(sources)):
        raise typer.Exit(1)


@app.command("status")
def show_status(index: Index, namespace: Namespace = None, as_json: AsJson = False) -> None:
    """Tell what is in an index, and whether it is in order."""
    _report(status(open_index(index), namespace=namespace), as_json)


@app.command("prune")
def prune_index(index: Index, namespace: Namespace = None, as_json: AsJson = False) -> None:
    """Delete what does not belong in an index, such as what an interrupted run left."""
    _report(prune(open_index(index), namespace=namespace), as_json)


@app.command()
def optimize(index: Index) -> None:
    """Build the graph for approximate search; worth its minutes from about 100,000 leaves on."""
    with console.status("Building the graph"):
        changed = open_index(index).optimize()
    console.print("The index was optimized." if changed else "The index was optimal already.")


@app.command()
def query(
    question: Annotated[str, typer.Argument(help="What to look for.")],
    index: Index,
    pattern: Annotated[str, typer.Option(help=f"{', '.join(PATTERNS)}, or the path of a pipeline file.")] = (
        DEFAULT_PATTERN
    ),
    top_k: Annotated[int | None, typer.Option(min=1, help="How many results to show.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Budget over all results, in characters.")] = None,
    filters: Annotated[str | None, typer.Option("--filter", help="A Haystack filter as JSON.")] = None,
    self_query: Annotated[
        bool, typer.Option("--self-query", help="Read constraints out of the question, and show what was understood.")
    ] = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Ask the index, and show what was found and what is handed over instead."""
    if not question.strip():
        raise ValueError("question must not be empty")
    store = open_index(index)
    pipeline = load_pipeline(pattern, index=index, overrides=_settings(settings))
    wanted = _json("--filter", filters) if filters else None
    search, attempts, understood = question, [wanted], None
    if self_query:
        understood = SelfQueryFilterBuilder(document_store=store, base_filters=wanted).run(query=question)
        search, attempts = understood["query"], [understood["filters"], *understood["relaxations"]]
    documents: list[Document] = []
    for attempt in attempts:
        documents = retrieve(pipeline, search, top_k=top_k, max_length=max_length, filters=attempt or None)
        if understood:
            understood["report"]["filters"] = attempt
        if documents:
            break
    if as_json:
        found = {"query": question, "pattern": pattern, "documents": [_plain(document) for document in documents]}
        print(json.dumps(found | ({"search": search, "understood": understood["report"]} if understood else {})))
        return
    if understood:
        console.print(f"searched  {search}\nfilter    {json.dumps(understood['report']['filters'])}")
        if understood["report"]["filters"] != understood["filters"]:
            console.print(f"relaxed   since nothing was found with {json.dumps(understood['filters'])}")
    for rank, document in enumerate(documents, start=1):
        _show(rank, document, store)
    if not documents:
        console.print("Nothing was found.")


def _settings(given: list[str] | None) -> dict[str, Any]:
    """Read `component.parameter=value`, the value as YAML."""
    settings: dict[str, Any] = {}
    for setting in given or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set must look like component.parameter=value, got {setting!r}")
        try:
            settings[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"--set {name} must be YAML, got {value!r}: {error}") from error
    return settings


def _json(option: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"{option} must be JSON, got {value!r}: {error}") from error


class _LeavesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.fields['leaves'] / task.elapsed if task.elapsed else 0:.0f}/s")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sources, {task.fields[leaves]} leaves embedded,"),
        _LeavesPerSecond(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _report(report: Any, as_json: bool) -> None:
    """Print a report's fields, a line each."""
    plain = asdict(report)
    for name, value in plain.items():
        console.print(f"{name.replace('_', ' '):<18} {value if value not in ([], {}, None) else '-'}")
    if as_json:
        print(json.dumps(plain))


@app.command()
def serve(
    index: Index,
    host: Annotated[str, typer.Option(help="Where to listen; others reach the server only if this is not local.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port.")] = 1416,
    pipelines: Annotated[Path | None, typer.Option(help="Folder of your own pipelines and wrappers.")] = None,
    summaries: Annotated[
        Summaries | None, typer.Option(help="Also index a summary of each section of what callers send.")
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="Folder of files that callers of the pipeline `indexing` may name.")
    ] = None,
    allow_deploy: Annotated[
        bool, typer.Option("--allow-deploy", help="Let callers deploy pipelines, which means to run code.")
    ] = False,
) -> None:
    """Serve all pipelines over HTTP with Hayhooks: search, index, and chat in OpenAI's protocol."""
    try:
        import uvicorn  # noqa: PLC0415 (the extra `serve`)

        from haystack_adv_retrieval.serving.app import make_app  # noqa: PLC0415
    except ImportError as error:
        raise RuntimeError("Serving needs more packages: pip install 'haystack-adv-retrieval[serve]'") from error
    server = make_app(index, pipelines, summaries=summaries, files=files, allow_deploy=allow_deploy)
    console.print(f"Serving {'' if index.is_dir() else 'the new index '}{index} on http://{host}:{port}")
    # Indexing may take half an hour, and can be cut off anywhere: who ends a server does not wait for it.
    uvicorn.run(server, host=host, port=port, log_level="warning", timeout_graceful_shutdown=10)


register(app)


def _plain(document: Document) -> dict[str, Any]:
    return {"id": document.id, "content": document.content, "score": document.score, "meta": document.meta}


def _show(rank: int, document: Document, store: QdrantEdgeDocumentStore) -> None:
    """Print a result: where it is from, the hit that was found, and the text that is handed over around it."""
    meta, text = document.meta, document.content or ""
    place = [_short(meta.get(chunks.SOURCE_ID, "")), f"page {meta.get(chunks.PAGE, 1)}", meta.get(chunks.HEADINGS)]
    score = "" if document.score is None else f"  score {document.score:.4f}"
    console.print(Text.assemble("\n", (str(rank), "bold"), "  ", (" · ".join(filter(None, place)), "cyan"), score))
    body = Text(text.translate(_CONTROLS))
    matched, offset = meta.get(chunks.MATCHED_SPANS) or [], meta.get(chunks.START, 0)
    found = ""
    if matched and meta.get(chunks.COMPRESSION, "none") == "none":
        spans = [(max(0, start - offset), max(0, end - offset)) for start, end, _ in matched]
        for span in spans:
            body.stylize("bold black on yellow", *span)
        found = body.plain[slice(*spans[0])]
    elif matched:  # the hit may have been left out, and what is kept has moved
        hits = store.get_documents_by_id(meta.get(chunks.EXPANDED_FROM, []), return_embedding=False)
        best = next((hit for hit in hits if extent_of(hit.meta) == tuple(matched[0][:2])), Document(content=""))
        found = (best.content or "").translate(_CONTROLS)
    if found:
        console.print(Text.assemble(("found  ", "dim"), (found.strip(), "yellow")))
    console.print(Text.assemble(("read   ", "dim"), f"{len(text)} characters"))
    body.rstrip()
    console.print(body)


def _short(source: str) -> str:
    """Show a path relative to where the user is, when it lies below."""
    here = Path.cwd().as_posix() + "/"
    return source.removeprefix(here)


def main() -> None:
    """Run the command line; errors of use become one line."""
    disable_progress_bars()  # of models that are loaded; the commands show their own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name of a file, or a question, may hold what has no encoding
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except _ERRORS_OF_USE as error:
        reason: BaseException = error
        while isinstance(reason, _AROUND) and reason.__cause__:
            reason = reason.__cause__
        console.print(Text.assemble(("Error:", "red"), f" {reason}"))
        sys.exit(2)


if __name__ == "__main__":
    main()
