"""
Compares sentence segmentation with gold data, beside the library alone.

Usage: python benchmarks/sentences.py FOLDER

FOLDER holds text files named after the language of their cases. A case is a text, a line `---`, its sentences on a
line each (where `\\n` stands for a newline) and a line `===`; one that begins with `#` is left out.
"""

import sys
from pathlib import Path

import sentencex

from haystack_adv_retrieval.core.sentences import sentence_spans


def cases(path: Path) -> list[tuple[str, list[str]]]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found = []
    for case in "\n".join(lines).split("\n===")[:-1]:
        text, _, sentences = case.partition("\n---\n")
        found.append((text.strip(), [normal(line.replace("\\n", "\n")) for line in sentences.splitlines()]))
    return [(text, [sentence for sentence in sentences if sentence]) for text, sentences in found]


def normal(text: str) -> str:
    """Make white space alike, for the gold data does not keep it."""
    return " ".join(text.split())


def ours(text: str, language: str) -> list[str]:
    return [normal(span.text(text)) for span in sentence_spans(text, language)]


def library(text: str, language: str) -> list[str]:
    return [normal(sentence) for sentence in sentencex.segment(language, text) if sentence.strip()]


def main(folder: str) -> None:
    print(f"{'language':<10}{'cases':>7}{'ours':>7}{'sentencex alone':>17}")
    totals = [0, 0, 0]
    for path in sorted(Path(folder).glob("*.txt")):
        language = "en" if path.stem == "lists" else path.stem
        gold = cases(path)
        right = [sum(segment(text, language) == sentences for text, sentences in gold) for segment in (ours, library)]
        print(f"{path.stem:<10}{len(gold):>7}{right[0]:>7}{right[1]:>17}")
        totals = [total + count for total, count in zip(totals, (len(gold), *right), strict=True)]
    print(f"{'all':<10}{totals[0]:>7}{totals[1]:>7}{totals[2]:>17}")


if __name__ == "__main__":
    main(sys.argv[1])
