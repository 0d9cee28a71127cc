from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.windows import sentences_around, widen

LEAVES = {0: Span(0, 10), 1: Span(10, 20), 2: Span(20, 30), 3: Span(30, 40), 4: Span(40, 50)}


def test_a_window_grows_by_so_many_leaves_on_each_side():
    assert widen(LEAVES[2], range(2, 3), LEAVES.get, 1) == (Span(10, 40), [])


def test_a_window_ends_at_a_leaf_that_is_not_known_and_names_it():
    known = {ordinal: span for ordinal, span in LEAVES.items() if ordinal != 1}
    assert widen(LEAVES[2], range(2, 3), known.get, 2) == (Span(20, 50), [1])


def test_a_window_around_several_leaves_grows_at_their_ends():
    assert widen(Span(10, 30), range(1, 3), LEAVES.get, 1) == (Span(0, 40), [])


def test_a_window_does_not_jump_over_a_gap():
    assert widen(Span(22, 25), range(2, 3), LEAVES.get, 2) == (Span(22, 25), [])


def test_leaves_that_overlap_grow_the_window():
    assert widen(Span(5, 12), range(1, 2), {0: Span(0, 6), 2: Span(11, 20)}.get, 1) == (Span(0, 20), [])


def test_sentences_are_counted_around_all_that_a_span_touches():
    text = "One. Two. Three. Four. Five."
    own = Span(text.index("o."), text.index("ree"))
    assert sentences_around(text, own, 1).text(text) == "One. Two. Three. Four. "


def test_a_blank_text_has_no_sentences_to_add():
    assert sentences_around("   ", Span(1, 2), 3) == Span(1, 2)
