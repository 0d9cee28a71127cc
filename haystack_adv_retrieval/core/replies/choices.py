"""Reading which of the numbered sentences a model chose."""

import re

from haystack_adv_retrieval.core.replies.answers import answer_of
from haystack_adv_retrieval.core.replies.labels import read_labels

_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
# A verdict stands at the end, or at the start and apart from what follows: "no idea" is none.
_VERDICT = re.compile(r"^\W*(?:yes|no)\b(?!\s*\w)|\b(?:yes|no)\W*$", re.IGNORECASE)


def read_choice(text: str, count: int) -> tuple[list[int], bool]:
    """
    Read the numbers of sentences out of a reply.

    :param text: The reply. In place of numbers, a verdict ("yes", "Not relevant (NO)") stands for all or none.
    :param count: How many sentences there are.
    :returns: The numbers, from 1 to `count`, and whether something had to be mended.
    :raises ValueError: If the reply states neither.
    """
    try:
        return read_labels(text, count, allow_none=True, ranges=True)
    except ValueError:
        answer = answer_of(text)
        verdicts = {verdict.casefold() for verdict in _WORD.findall(answer)}
        if len(verdicts) != 1 or not _VERDICT.search(answer):
            raise
        return (list(range(1, count + 1)) if verdicts == {"yes"} else []), True
