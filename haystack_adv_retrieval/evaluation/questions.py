"""
The labelled set: questions, and where in the sources their answers stand.

One JSON object a line. `question` is required, and one of three forms of gold:

- `spans`: `[{"source": "leave.md", "start": 120, "end": 180}, ...]`, in code points;
- `source` and `quotes`: text copied from that source, which must occur in it exactly once (runs of white space count as
  equal). A quote from another source is written `{"source": "pay.md", "quote": "..."}`;
- `sources`, or `source` alone: the sources to be found, wherever in them the answer stands.

`answer`, `group`, `metadata` (flat) and `drafted` are optional. A source is named by its id, or by the end of it that
is unique: `leave.md` means `handbook/leave.md`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rapidfuzz import fuzz

from haystack_adv_retrieval.core.spans import Span, merge


@dataclass(frozen=True)
class Question:
    """
    A question with its gold.

    :param text: The question.
    :param sources: Ids of the sources that hold the answer.
    :param spans: The gold text of each source, disjoint and ascending; empty if only the sources are known.
    :param answer: A reference answer.
    :param group: The kind of question; results are also shown for each group.
    :param metadata: Anything else.
    :param drafted: Whether a model wrote the question and no human has checked it.
    """

    text: str
    sources: frozenset[str]
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    answer: str | None = None
    group: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    drafted: bool = False


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _GoldSpan(_Strict):
    source: str
    start: int = Field(ge=0)
    end: int


class _Quote(_Strict):
    source: str
    quote: str


class _Row(_Strict):
    question: str = Field(pattern=r"\S")
    spans: list[_GoldSpan] = []
    source: str | None = None
    quotes: list[str | _Quote] = []
    sources: list[str] = []
    answer: str | None = None
    group: str | None = None
    metadata: dict[str, Any] = {}
    drafted: bool = False


def load_questions(path: str | Path, sources: Mapping[str, str] | None = None) -> list[Question]:
    """
    Read a labelled set.

    :param path: A JSONL file.
    :param sources: The text of every source by its id. Without it, quotes can't be located, and names of sources are
        taken as they are.
    :returns: The questions in the order of the file.
    :raises ValueError: If the file holds no question, or if lines are wrong; all of them are named as `file:line`.
    """
    questions: list[Question] = []
    problems: list[str] = []
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    # Not `splitlines`, which also splits at characters that JSON allows within a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            questions.append(_question(_Row.model_validate_json(line), sources))
        except ValidationError as error:
            problems += (f"{path}:{number}: {_message(detail)}" for detail in error.errors())
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    if not questions:
        raise ValueError(f"{path}: no questions")
    return questions


def grouped_by(questions: Iterable[Question], key: str) -> list[Question]:
    """
    Group questions by their metadata.

    :param questions: The questions.
    :param key: A key of `metadata`; its value becomes the group.
    :returns: Copies of the questions; those without the key have no group.
    """
    return [
        replace(question, group=str(question.metadata[key]) if key in question.metadata else None)
        for question in questions
    ]


def save_questions(path: str | Path, questions: Iterable[Question]) -> None:
    """
    Write a labelled set that `load_questions` reads.

    :param path: The JSONL file; it is overwritten.
    :param questions: The questions. Gold text is written as offsets.
    """
    lines = (json.dumps(_row(question), ensure_ascii=False) + "\n" for question in questions)
    Path(path).write_text("".join(lines), encoding="utf-8")


def locate(quote: str, text: str) -> Span:
    """
    Find quoted text in its source.

    :param quote: Text copied from the source. Runs of white space count as equal, so a wrapped line is found.
    :param text: The source.
    :returns: Where the quote stands.
    :raises ValueError: If it does not occur, or more than once.
    """
    found = list(re.finditer(r"\s+".join(map(re.escape, quote.split())), text)) if quote.strip() else []
    if len(found) == 1:
        return Span(*found[0].span())
    if found:
        raise ValueError(f"the quote {quote!r} occurs {len(found)} times; quote more of its surroundings")
    nearest = fuzz.partial_ratio_alignment(quote, text)
    hint = f"; nearest is {text[nearest.dest_start : nearest.dest_end]!r}" if nearest and nearest.score > 60 else ""
    raise ValueError(f"the quote {quote!r} is not in the source{hint}")


def _question(row: _Row, sources: Mapping[str, str] | None) -> Question:
    if sum(map(bool, (row.spans, row.quotes, row.sources or (row.source and not row.quotes)))) != 1:
        raise ValueError("give the gold in exactly one form: `spans`, `quotes` with their `source`, or `sources`")
    gold: dict[str, list[Span]] = {}
    for item in row.spans:
        name = _resolve(item.source, sources)
        if not item.start < item.end or (sources is not None and item.end > len(sources[name])):
            raise ValueError(f"the span [{item.start}, {item.end}) is empty or not inside of {name!r}")
        gold.setdefault(name, []).append(Span(item.start, item.end))
    for quote in row.quotes:
        if sources is None:
            raise ValueError("quotes can be located only in the sources' texts")
        source, text = (row.source or "", quote) if isinstance(quote, str) else (quote.source, quote.quote)
        name = _resolve(source, sources)
        gold.setdefault(name, []).append(locate(text, sources[name]))
    named = row.sources or ([row.source] if row.source else [])
    return Question(
        text=row.question,
        sources=frozenset(gold or (_resolve(name, sources) for name in named)),
        spans={name: tuple(merge(spans)) for name, spans in gold.items()},
        answer=row.answer,
        group=row.group,
        metadata=row.metadata,
        drafted=row.drafted,
    )


def _resolve(name: str, sources: Mapping[str, str] | None) -> str:
    if sources is None or name in sources:
        return name
    known = [source for source in sources if source.replace("\\", "/").endswith("/" + name)]
    if len(known) != 1:
        reason = f"may be any of {sorted(known)}" if known else f"is none of the {len(sources)} sources"
        raise ValueError(f"the source {name!r} {reason}")
    return known[0]


def _row(question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"question": question.text}
    if question.spans:
        row["spans"] = [
            {"source": source, "start": span.start, "end": span.end}
            for source, spans in question.spans.items()
            for span in spans
        ]
    else:
        row["sources"] = sorted(question.sources)
    optional = {
        "answer": question.answer,
        "group": question.group,
        "metadata": dict(question.metadata),
        "drafted": question.drafted,
    }
    return row | {key: value for key, value in optional.items() if value}


def _message(detail: Any) -> str:
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else str(detail["msg"])
