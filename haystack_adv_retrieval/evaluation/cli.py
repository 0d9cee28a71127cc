"""The commands that measure: `eval`, `sweep` and `questions`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import yaml
from haystack import Document, Pipeline
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.evaluation.drafting import draft_questions
from haystack_adv_retrieval.evaluation.evaluate import BUDGETS, evaluate
from haystack_adv_retrieval.evaluation.indexes import build_index, fixed_size_baseline, read_sources
from haystack_adv_retrieval.evaluation.judge import TRIAD, Judge
from haystack_adv_retrieval.evaluation.questions import grouped_by, load_questions, save_questions
from haystack_adv_retrieval.evaluation.report import write_report
from haystack_adv_retrieval.evaluation.results import Evaluation
from haystack_adv_retrieval.evaluation.sweep import Trial, combinations, sweep
from haystack_adv_retrieval.llm.asking import helper_model
from haystack_adv_retrieval.pipelines import load_pipeline
from haystack_adv_retrieval.terminal import console, open_index

BASELINE_WORDS = 200
WITHOUT_MODEL = "parent,window,merge,packed,compressed"

Questions = Annotated[Path, typer.Option("--questions", help="The labelled set, as JSONL.", exists=True)]
Index = Annotated[Path, typer.Option("--from", help="Folder of the index.")]
Budgets = Annotated[
    list[int] | None, typer.Option("--budget", min=1, help="Measure contexts cut at this many characters.")
]
TopK = Annotated[int, typer.Option(min=1, help="Measure contexts cut after this many results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, on the last line of the output.")]


def evaluate_command(
    questions: Questions,
    index: Index,
    strategies: Annotated[
        str,
        typer.Option(
            help="Patterns or pipeline files, separated by commas; or a YAML file that maps names to a pattern or to "
            "{pipeline: ..., set: {component.parameter: value}, index: FOLDER}."
        ),
    ] = WITHOUT_MODEL,
    baseline: Annotated[
        str | None, typer.Option(help="The strategy to compare with; by default chunks of a fixed size.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    group_by: Annotated[str | None, typer.Option(help="Group the questions by this key of their metadata.")] = None,
    budget: Budgets = None,
    top_k: TopK = 5,
    judge: Annotated[bool, typer.Option("--judge", help="Also let the chat model judge contexts and replies.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare strategies on labelled questions, with chunks of a fixed size too, and say if differences are real."""
    sources = read_sources(open_index(index))
    texts = _texts(sources)
    labelled = load_questions(questions, texts)
    if group_by:
        labelled = grouped_by(labelled, group_by)
    with TemporaryDirectory() as folder, _progress() as progress:
        compared: dict[str, Pipeline] = {}
        if baseline is None:
            baseline = f"{BASELINE_WORDS} words"
            with _step(progress, f"Indexing chunks of {baseline}"):
                compared[baseline] = fixed_size_baseline(sources, Path(folder), words=BASELINE_WORDS)
        compared |= read_strategies(strategies, index)
        task = progress.add_task("Asking", total=len(compared) * len(labelled))
        evaluation = evaluate(
            compared,
            labelled,
            baseline=baseline,
            budgets=budget or BUDGETS,
            top_k=top_k,
            judge=Judge(_json_model()) if judge else None,
            advance=lambda: progress.advance(task),
        )
    _show(evaluation)
    if report:
        write_report(report, evaluation, texts)
        console.print(f"Report: {report}")
    if as_json:
        print(json.dumps(evaluation.to_dict()))


def sweep_command(
    questions: Questions,
    index: Index,
    tries: Annotated[
        list[str],
        typer.Option(
            "--try",
            help="A setting and its values, e.g. expander.window_size=[1,2,3]. `pattern` is the pattern itself; what "
            "begins with `index.` is a setting of indexing, e.g. index.splitter.block_sizes=[[400,60],[800,80]].",
        ),
    ],
    pattern: Annotated[str, typer.Option(help="The pattern, or the path of a pipeline file.")] = "window",
    trials: Annotated[int | None, typer.Option(min=1, help="Draw this many at random, instead of trying all.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the questions that the search does not see.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    metric: Annotated[
        str | None, typer.Option(help="What to maximise; by default recall at the middle budget.")
    ] = None,
    budget: Budgets = None,
    top_k: TopK = 5,
    as_json: AsJson = False,
) -> None:
    """Search for the best settings, and compare them with the default on questions that the search did not see."""
    sources = read_sources(open_index(index))
    labelled = load_questions(questions, _texts(sources))
    space = dict(map(_values, tries))
    indexes: dict[str, Path] = {"{}": index}

    with TemporaryDirectory() as folder, _progress() as progress:

        def build(settings: dict[str, Any]) -> Pipeline:
            of_index = {name[6:]: value for name, value in settings.items() if name.startswith("index.")}
            key = json.dumps(of_index)
            if key not in indexes:
                place = Path(folder) / str(len(indexes))
                with _step(progress, f"Indexing with {key}"):
                    build_index(sources, place, of_index)
                indexes[key] = place
            others = {name: value for name, value in settings.items() if not name.startswith(("index.", "pattern"))}
            chosen = settings.get("pattern", pattern)
            return load_pipeline(chosen, index=indexes[key], overrides=others)

        task = progress.add_task("Trying settings", total=len(combinations(space, trials, seed)) + 1)

        def advance(trial: Trial) -> None:
            progress.advance(task)
            progress.console.print(f"{trial.score:.3f}  {_words(trial)}")

        result = sweep(
            build,
            space,
            labelled,
            metric=metric,
            trials=trials,
            held_out=held_out,
            seed=seed,
            budgets=budget or BUDGETS,
            top_k=top_k,
            advance=advance,
        )
    console.print(
        f"Best on {len(result.tuning)} questions: {_words(result.best)}, {result.metric} {result.best.score:.3f}"
    )
    console.print(f"On the others: {result.held_out.summary(result.metric)}")
    if as_json:
        found = [
            {"settings": t.settings, "score": t.score if t.error is None else None, "error": t.error}
            for t in result.trials
        ]
        print(json.dumps({"metric": result.metric, "trials": found, "held_out": result.held_out.to_dict()}))


def questions_command(
    index: Index,
    to: Annotated[Path, typer.Option("--to", help="The JSONL file; what it holds already is kept.")],
    number: Annotated[int, typer.Option(min=1, help="How many questions to draft.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the choice of passages.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draft a labelled set with the chat model. Its lines are marked as drafted: check them before you trust scores."""
    texts = _texts(read_sources(open_index(index)))
    known = load_questions(to, texts) if to.exists() else []
    with console.status("Drafting"):
        drafts = draft_questions(texts, helper_model(), number=number, known=known, seed=seed)
    save_questions(to, [*known, *drafts.questions])
    rejected = ", ".join(f"{count} {reason}" for reason, count in drafts.rejected.most_common())
    console.print(f"{len(drafts.questions)} questions drafted to {to}; rejected: {rejected or 'none'}")
    if as_json:
        print(json.dumps({"drafted": len(drafts.questions), "rejected": dict(drafts.rejected)}))


def register(app: typer.Typer) -> None:
    """
    Add the commands to a command line.

    :param app: The Typer app.
    """
    app.command("eval")(evaluate_command)
    app.command("sweep")(sweep_command)
    app.command("questions")(questions_command)


def read_strategies(given: str, index: Path) -> dict[str, Pipeline]:
    """
    Load the strategies that are named on a command line.

    :param given: Names of patterns or paths of pipeline files, separated by commas, or the path of a YAML file that
        maps names to them or to `{pipeline: ..., set: {...}, index: FOLDER}`.
    :param index: The index that they search unless they name another.
    :returns: The pipelines by name.
    :raises ValueError: If the file is not such a mapping.
    :raises FileNotFoundError: If there is no index where one is named.
    """
    path = Path(given)
    listed: Any = {name: name for name in given.split(",")}
    if path.suffix in (".yml", ".yaml") and "components" not in (content := yaml.safe_load(path.read_text("utf-8"))):
        listed = content
    strategies = {}
    for name, value in listed.items():
        described: Any = {"pipeline": value} if isinstance(value, str) else value
        if not isinstance(described, Mapping) or not {"pipeline"} <= set(described) <= {"pipeline", "set", "index"}:
            raise ValueError(
                f"{path}: {name!r} must be a pattern or have the keys pipeline, set and index, got {value!r}"
            )
        folder = Path(described.get("index", index))
        open_index(folder)  # so that a wrong folder is named
        strategies[str(name)] = load_pipeline(str(described["pipeline"]), index=folder, overrides=described.get("set"))
    return strategies


def _texts(sources: list[Document]) -> dict[str, str]:
    return {source.meta[chunks.SOURCE_ID]: source.content or "" for source in sources}


def _values(given: str) -> tuple[str, list[Any]]:
    name, _, values = given.partition("=")
    listed = yaml.safe_load(values)
    if not isinstance(listed, list):
        raise ValueError(f"--try must look like component.parameter=[value, value], got {given!r}")
    return name, listed


def _words(trial: Trial) -> str:
    words = ", ".join(f"{name}={json.dumps(value)}" for name, value in trial.settings.items()) or "default settings"
    return f"{words} ({trial.error})" if trial.error else words


def _json_model() -> Any:
    """Take the default chat model in its JSON mode, as Haystack's evaluators read nothing else."""
    model: Any = helper_model()
    model.generation_kwargs = {**model.generation_kwargs, "response_format": {"type": "json_object"}}
    return model


def _progress() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


@contextmanager
def _step(progress: Progress, words: str) -> Iterator[TaskID]:
    task = progress.add_task(words, total=None)
    yield task
    progress.remove_task(task)


def _show(evaluation: Evaluation) -> None:
    """Print the scores and costs of each strategy, and what to make of them."""
    metric, costs = evaluation.main_metric, evaluation.to_dict()["strategies"]
    shown = {f"recall@{budget}": f"R@{budget}" for budget in evaluation.budgets} | {"mrr": "MRR"}
    shown |= {name: name.replace("_", " ") for name in TRIAD if name in evaluation.metrics}
    table = Table("", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for title in (*shown.values(), "length", "ms", "calls"):
        table.add_column(title, justify="right")
    for name in evaluation.ranking():
        numbers = [f"{evaluation.mean(name, one):.3f}" for one in shown]
        numbers += [f"{costs[name]['context_length']:.0f}", f"{costs[name]['seconds']['total']['p50'] * 1000:.0f}"]
        table.add_row(Text(name, "bold"), *numbers, f"{costs[name]['llm_calls']:.1f}")
    console.print(table)
    for name in evaluation.ranking():
        if name != evaluation.baseline:
            result = evaluation.comparison(name, metric)
            color = {"better": "green", "worse": "red"}.get(result.verdict, "yellow")
            change = f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f})"
            console.print(Text.assemble(f"{name}: ", (result.verdict, color), f", {metric} {change}"))
        for error in dict.fromkeys(costs[name]["errors"]):
            console.print(Text.assemble((f"{name} failed:", "red"), f" {error}"))
    drafted = sum(question.drafted for question in evaluation.questions)
    if drafted:
        warning = f"A model drafted {drafted} of the {len(evaluation.questions)} questions."
        console.print(Text.assemble((warning, "yellow"), " Check them."))
    console.print(Text.assemble("\n", (evaluation.summary(), "bold")))
