"""The sentences of a text, and which of them need another one to be understood."""

import re
from dataclasses import dataclass
from itertools import starmap

from haystack_adv_retrieval.core.hierarchy import Hierarchy
from haystack_adv_retrieval.core.rulers import UnitRuler, word_starts
from haystack_adv_retrieval.core.sentences import tile
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.structure import find_blocks

# Words that point back to the sentence before, at the start of an English sentence.
_LEANING = re.compile(
    r"\W*(?:this|that|these|those|it|its|they|their|them|he|his|she|her|such|both|neither|either|the (?:above|former|"
    r"latter|same)|here|there|then|otherwise|however|therefore|thus|hence|consequently|accordingly|but|and|or|nor|so|"
    r"yet|also|again|instead|moreover|furthermore|in (?:this|that|such|these|those|either|both)|if so|if not|"
    r"for (?:this|that|these|those)|after (?:this|that)|before (?:this|that)|until (?:this|that|then)|except)\b",
    re.IGNORECASE,
)
# A demonstrative that stands alone, wherever it is: "within 14 days of this."
_ALONE = re.compile(r"\b(?:this|these|those)\b(?=\s*[.,;:!?)]|\s*$)", re.IGNORECASE)
_RULE = re.compile(r"[\s|:+=-]+")
# A sentence with more words is divided, as in the leaves of the default index. Where full stops are rare, a "sentence"
# is a page long: too much for a small budget, and about too many things for one score.
LONGEST = 60


@dataclass(frozen=True, slots=True)
class Unit:
    """
    A sentence or a part of a long one, a row of a table, a list item, a heading or a block of code.

    :param span: Where it is in the text, without white space around it.
    :param needs: Indices of earlier units that it cannot be understood without: the heading above it, the header of its
        table, the lead-in of its list, the sentence that it leans on.
    :param is_label: Whether it only names what others say: a heading, the header of a table.
    :param heading: Index of the heading that it is under.
    """

    span: Span
    needs: tuple[int, ...] = ()
    is_label: bool = False
    heading: int | None = None


def find_units(text: str, language: str = "en") -> list[Unit]:
    """
    Split a text into units.

    :param text: Any text.
    :param language: ISO 639 code of its language. Sentences that lean on the one before are known in English alone.
    :returns: The units in order; together they hold every character that is not white space.
    """
    units: list[Unit] = []
    heading: int | None = None  # the unit of the heading that the current block is under
    lead: int | None = None  # the sentence that introduces the current list
    blocks = find_blocks(text)
    hierarchy = Hierarchy(text, blocks, UnitRuler(word_starts(text), len(text)), language)
    for block in blocks:
        above = () if heading is None else (heading,)
        if block.kind == "heading":
            heading, lead = len(units), None
            units.append(_unit(text, block.span, is_label=True, heading=heading))
        elif block.kind == "table":
            rows = tile(text, _line_starts(text, block.span), block.span)
            header = [len(units) + n for n, row in enumerate(rows[:2]) if n == 0 or _RULE.fullmatch(row.text(text))]
            for number, row in enumerate(rows):
                is_header = number < len(header) and len(rows) > len(header)
                needed = above if number < len(header) else (*above, *header)
                units.append(_unit(text, row, needed, is_header, heading))
        elif block.kind in ("code", "front_matter"):
            units.append(_unit(text, block.span, above, heading=heading))
        else:
            is_item = block.kind == "item"
            for number, sentence in enumerate(starmap(Span, hierarchy.sentences(*block.span, LONGEST))):
                needs = set(above)
                previous = len(units) - 1
                if is_item and lead is not None:
                    needs.add(lead)
                words = sentence.text(text)
                leans = language == "en" and (_LEANING.match(words) or _ALONE.search(words))
                if previous >= 0 and previous != heading and (leans or (is_item and number > 0)):
                    needs.add(previous)
                units.append(_unit(text, sentence, tuple(sorted(needs)), heading=heading))
            if not is_item:
                introduces = bool(units) and units[-1].span.text(text).endswith(":")
                lead = len(units) - 1 if introduces else None
    return units


def _line_starts(text: str, span: Span) -> list[int]:
    return [span.start + match.end() for match in re.finditer(r"\n", span.text(text))]


def _unit(
    text: str, span: Span, needs: tuple[int, ...] = (), is_label: bool = False, heading: int | None = None
) -> Unit:
    content = span.text(text)
    start = span.start + len(content) - len(content.lstrip())
    return Unit(Span(start, start + len(content.strip())), needs, is_label, heading)
