"""Whether a summary says only what its source says, as far as numbers, names and quotations tell."""

import re

_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_QUOTE = re.compile(r"[\"\u201c\u201e\u00ab]([^\"\u201c\u201d\u201e\u00ab\u00bb]{3,})[\"\u201d\u201c\u00bb]")
# A capital inside a sentence, or capitals and digits inside a word, mark a name.
_NAME = re.compile(
    r"(?<![.!?:\n\"\u201c] )(?<![.!?:\n\"\u201c])(?<!^)\b[A-Z][\w\u2019'-]+|\b\w*(?:[a-z][A-Z]|[A-Z]{2})\w*"
)
_WORD = re.compile(r"[^\W_]+")


def unsupported(summary: str, source: str) -> list[str]:
    """
    Find claims of a summary that its source does not hold.

    Numbers have to stand in the source with the same digits, names as the same words, quotations to the letter (white
    space and case aside). A claim without any of these is not checked.

    :param summary: The summary.
    :param source: The text that it is about.
    :returns: The numbers, names and quotations that the source lacks; none if all is supported.
    """
    flat = " ".join(source.casefold().split())
    numbers = {_digits(match.group()) for match in _NUMBER.finditer(source)}
    words = {match.group() for match in _WORD.finditer(flat)}
    claims = [match.group() for match in _NUMBER.finditer(summary) if _digits(match.group()) not in numbers]
    claims += [
        match.group()
        for match in _NAME.finditer(summary)
        if not {word.group() for word in _WORD.finditer(match.group().casefold())} <= words
    ]
    claims += [
        match.group(1) for match in _QUOTE.finditer(summary) if " ".join(match.group(1).casefold().split()) not in flat
    ]
    return list(dict.fromkeys(claims))


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number)
