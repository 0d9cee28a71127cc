"""The part of a text that fits a budget, around what matters in it."""

from bisect import bisect_left, bisect_right

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.rulers import Ruler
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span


def excerpt(text: str, focus: Span, max_length: int, ruler: Ruler) -> Span:
    """
    Choose whole sentences around a focus, what follows before what precedes, as long as they fit.

    :param text: The text.
    :param focus: The part that matters, in positions of the text.
    :param max_length: The budget, in the ruler's units; at least 1.
    :param ruler: Measures spans of the text.
    :returns: A span that is no longer than the budget. Where the focus itself is longer, as much of it as fits.
    """
    sentences = sentence_spans(text)
    starts = [sentence.start for sentence in sentences]
    first = max(0, bisect_right(starts, focus.start) - 1)
    last = max(first, bisect_left(starts, focus.end) - 1)
    if not sentences or ruler.count(starts[first], sentences[last].end) > max_length:
        end = min(ruler.reach(focus.start, max_length), focus.end)
        while end > focus.start + 1 and not is_grapheme_boundary(text, end):
            end -= 1
        return Span(focus.start, end)
    growing = True
    while growing:
        growing = False
        if last + 1 < len(sentences) and ruler.count(starts[first], sentences[last + 1].end) <= max_length:
            last, growing = last + 1, True
        if first > 0 and ruler.count(starts[first - 1], sentences[last].end) <= max_length:
            first, growing = first - 1, True
    return Span(starts[first], sentences[last].end)
