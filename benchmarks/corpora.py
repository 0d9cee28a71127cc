"""The labelled collection that several benchmarks share."""

import csv
import json
from pathlib import Path

from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.evaluation.questions import Question


def chunking_evaluation(folder: Path) -> tuple[dict[str, str], list[Question]]:
    """Read the texts of Chroma's chunking evaluation by the names of their files, and questions with gold spans."""
    folder = folder / "chunking_evaluation"
    corpus = {path.name: path.read_text("utf-8") for path in sorted((folder / "corpora").glob("*.md"))}
    questions = []
    with (folder / "questions.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name, references = row["corpus_id"], json.loads(row["references"])
            spans = merge(Span(reference["start_index"], reference["end_index"]) for reference in references)
            gold = {f"{name}.md": tuple(spans)}
            questions.append(Question(row["question"], frozenset(gold), gold, group=name))
    return corpus, questions
