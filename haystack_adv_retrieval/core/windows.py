"""Windows: a span and its neighbours on both sides."""

from collections.abc import Callable

from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span, merge


def widen(own: Span, leaves: range, span_of: Callable[[int], Span | None], size: int) -> tuple[Span, list[int]]:
    """
    Widen a span by leaves on both sides.

    :param own: The span.
    :param leaves: Ordinals of the leaves that it consists of.
    :param span_of: Finds the span of a leaf by its ordinal; None if it is not known.
    :param size: How many leaves to add on each side.
    :returns: The widened span, and the ordinals that ended it because they are not known. It also ends at a neighbour
        that does not touch it.
    """
    window, unknown = own, []
    before, after = range(leaves.start - 1, leaves.start - 1 - size, -1), range(leaves.stop, leaves.stop + size)
    for ordinals in (before, after):
        for ordinal in ordinals:
            neighbour = span_of(ordinal)
            if neighbour is None:
                unknown.append(ordinal)
                break
            widened, *apart = merge([window, neighbour])
            if apart:
                break
            window = widened
    return window, unknown


def sentences_around(text: str, own: Span, size: int, language: str = "en") -> Span:
    """
    Find the sentences that a span lies in, and some on both sides.

    :param text: Any text.
    :param own: A span of it.
    :param size: How many sentences to add on each side.
    :param language: ISO 639 code of the text's language.
    :returns: A span from the start of a sentence to the end of one.
    """
    sentences = sentence_spans(text, language)
    inside = [index for index, sentence in enumerate(sentences) if sentence.overlaps(own)]
    if not inside:
        return own
    first, last = max(0, inside[0] - size), min(len(sentences) - 1, inside[-1] + size)
    return Span(sentences[first].start, sentences[last].end)
