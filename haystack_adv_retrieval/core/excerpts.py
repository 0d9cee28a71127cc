"""The part of a text that fits a budget, around what matters in it."""

from bisect import bisect_left, bisect_right

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.rulers import Ruler
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span

# How far back a cut looks for white space; a longer run of characters is no word, or of a script without spaces.
LONGEST_WORD = 32


def excerpt(text: str, focus: Span, max_length: int, ruler: Ruler) -> Span:
    """
    Choose whole sentences around a focus, what follows before what precedes, as long as they fit.

    Of a focus that is longer than the budget, its first sentences are chosen; of a sentence that is, its first words
    from the focus on.

    :param text: The text.
    :param focus: The part that matters, in positions of the text.
    :param max_length: The budget, in the ruler's units; at least 1.
    :param ruler: Measures spans of the text.
    :returns: A span without white space around it that is no longer than the budget; empty if the text is blank.
    """
    sentences = sentence_spans(text)
    if not sentences:
        return Span(0, 0)
    starts, ends = [sentence.start for sentence in sentences], [sentence.end for sentence in sentences]
    first = max(0, bisect_right(starts, focus.start) - 1)
    is_whole = ruler.count(starts[first], ends[first]) <= max_length
    start = starts[first] if is_whole else focus.start
    fitting = bisect_right(ends, ruler.reach(start, max_length)) - 1
    if fitting < first:
        return first_words(text, start, max_length, ruler)
    last = min(fitting, max(first, bisect_left(starts, focus.end) - 1))
    growing = True
    while growing:
        growing = False
        if last + 1 < len(sentences) and ruler.count(start, ends[last + 1]) <= max_length:
            last, growing = last + 1, True
        if is_whole and first > 0 and ruler.count(starts[first - 1], ends[last]) <= max_length:
            first, growing = first - 1, True
            start = starts[first]
    return _trimmed(text, Span(start, ends[last]))


def first_words(text: str, start: int, max_length: int, ruler: Ruler) -> Span:
    """
    Choose words from a place on, as long as they fit.

    :param text: The text.
    :param start: The place.
    :param max_length: The budget, in the ruler's units; at least 1.
    :param ruler: Measures spans of the text.
    :returns: A span without white space around it that is no longer than the budget.
    """
    return _trimmed(text, Span(start, _cut_back(text, start, ruler.reach(start, max_length))))


def _cut_back(text: str, start: int, end: int) -> int:
    """Move the end of a cut back to the end of a word, or at least of a character as a reader sees it."""
    if end < len(text) and not text[end - 1].isspace():
        blank = max(text.rfind(white, max(start, end - LONGEST_WORD), end) for white in " \n\t")
        if blank > start:
            return blank
    while end > start + 1 and not is_grapheme_boundary(text, end):
        end -= 1
    return end


def _trimmed(text: str, span: Span) -> Span:
    content = span.text(text)
    return Span(span.start + len(content) - len(content.lstrip()), span.end - len(content) + len(content.rstrip()))
