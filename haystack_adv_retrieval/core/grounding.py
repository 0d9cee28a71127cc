"""Whether a summary says only what its source says, as far as numbers, names and quotations tell."""

import re
from collections.abc import Iterator

import regex

_SMALL = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# "One" is a pronoun more often than a number.
_IN_WORDS = {word: str(value) for value, word in enumerate(_SMALL, 2)} | {
    word: str(10 * value) for value, word in enumerate(_TENS, 2)
}
_NUMBER = re.compile(rf"\d+(?:[.,:/]\d+)*|\b(?:{'|'.join(_IN_WORDS)})\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_QUOTE = re.compile(r"[\"\u201c\u201e\u00ab]([^\"\u201c\u201d\u201e\u00ab\u00bb]{3,})[\"\u201d\u201c\u00bb]")
# A capital inside a sentence, or capitals inside a word, mark a name.
_NAME = regex.compile(
    r"(?<=[\w,)\]%'\u2019\u201d\"][ \t]+[(\[\"\u201c]?)\p{Lu}\w[\w\u2019'-]*|\b\w*(?:\p{Ll}\p{Lu}|\p{Lu}{2})\w*"
)
_POSSESSIVE = re.compile(r"['\u2019]s?$")
_WORD = re.compile(r"[^\W_]+")


def unsupported(summary: str, source: str) -> list[str]:
    """
    Find claims of a summary that its source does not hold.

    Numbers have to stand in the source, whether in digits or (up to ninety) in English words; names with the same
    words; quotations to the letter, white space and case aside. A name is a word with a capital that does not begin a
    sentence. What has none of these is not checked.

    :param summary: The summary.
    :param source: The text that it is about.
    :returns: The numbers, names and quotations that the source lacks; none if all is supported.
    """
    flat = _flat(source)
    numbers = {value for _, value in _numbers(source)}
    words = set(_WORD.findall(flat))
    names = (_POSSESSIVE.sub("", match.group()) for match in _NAME.finditer(summary))
    claims = [number for number, value in _numbers(summary) if value not in numbers]
    claims += [name for name in names if not set(_WORD.findall(name.casefold())) <= words]
    claims += [quote for quote in _QUOTE.findall(summary) if _flat(quote) not in flat]
    return list(dict.fromkeys(claims))


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _numbers(text: str) -> Iterator[tuple[str, str]]:
    """Find numbers as they are written, and in one common form."""
    for number in _NUMBER.findall(text):
        digits = _IN_WORDS.get(number.casefold()) or _THOUSANDS.sub("", number)
        yield number, digits.lstrip("0") or "0"
