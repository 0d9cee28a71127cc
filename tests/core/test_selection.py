from hypothesis import given, settings
from hypothesis import strategies as st

from haystack_adv_retrieval.core import selection
from haystack_adv_retrieval.core.selection import Candidate, select


def candidates(*scores, length=10, needs=None, texts=None, threshold=0.0):
    return [
        Candidate((texts or [0] * len(scores))[n], score, length, 1, (needs or {}).get(n, ()), score >= threshold)
        for n, score in enumerate(scores)
    ]


def chosen(*args, **kwargs):
    return select(*args, **kwargs).indices


def test_the_best_are_chosen_and_given_back_in_order():
    assert chosen(candidates(0.5, 0.1, 0.7, 0.9), top_k=3) == [0, 2, 3]


def test_equal_scores_are_chosen_from_the_start():
    assert chosen(candidates(0.5, 0.5, 0.5), top_k=2) == [0, 1]


def test_what_is_not_relevant_is_not_chosen_however_good_its_score():
    scored = [Candidate(0, 0.9, 10, is_relevant=False), Candidate(0, 0.5, 10), Candidate(0, 0.6, 10)]
    assert chosen(scored) == [1, 2]
    assert chosen(scored, top_k=1) == [2]
    assert chosen(scored[:1]) == []


def test_what_a_sentence_needs_comes_along_and_does_not_count():
    scored = candidates(0.0, 0.1, 0.2, 0.9, needs={3: (1,), 1: (0,)})
    assert chosen(scored, top_k=1) == [0, 1, 3]


def test_a_sentence_comes_alone_if_the_budget_has_no_room_for_what_it_needs():
    assert chosen(candidates(0.0, 0.9, needs={1: (0,)}), max_length=15) == [1]


def test_a_long_row_of_sentences_that_lean_on_each_other_is_judged_soon():
    scored = candidates(*range(20_000), needs={index: (index - 1,) for index in range(1, 20_000)})
    assert chosen(scored, max_length=32) == [19_997, 19_998, 19_999]


def test_sentences_that_do_not_fit_are_passed_over_for_shorter_ones():
    scored = [Candidate(0, 0.9, 10), Candidate(0, 0.8, 90), Candidate(0, 0.7, 10, 1)]
    assert chosen(scored, max_length=25, separator_length=3) == [0, 2]


def test_gaps_and_separators_take_part_of_the_budget():
    apart = [Candidate(0, 0.9, 10), Candidate(0, 0.1, 10, 1), Candidate(0, 0.8, 10, 1)]
    assert chosen(apart, max_length=22, separator_length=3) == [0, 1]
    assert chosen(apart, max_length=23, separator_length=3) == [0, 2]


def test_filling_a_gap_gives_the_separator_back():
    scored = [Candidate(0, 0.9, 10), Candidate(0, 0.1, 3, 1), Candidate(0, 0.8, 10, 1)]
    # 10 + 3 + 10 with a separator; 10 + 1 + 3 + 1 + 10 without
    assert chosen(scored, max_length=25, separator_length=3) == [0, 1, 2]


def test_texts_are_not_joined_by_separators():
    assert chosen(candidates(0.9, 0.8, texts=[0, 1]), max_length=20, separator_length=3) == [0, 1]


def test_a_budget_below_every_sentence_is_exceeded_by_the_best():
    assert chosen(candidates(0.1, 0.9, 0.2, needs={1: (0,)}), max_length=5) == [1]


def test_a_budget_that_is_used_up_gives_nothing():
    assert chosen(candidates(0.1, 0.9), max_length=0) == []


def test_what_goes_first_is_chosen_whatever_its_score():
    assert chosen(candidates(0.9, 0.8, 0.0, texts=[0, 0, 1], threshold=0.85), first=[0, 2]) == [0, 2]


def test_a_kept_text_gets_its_least_number_of_sentences():
    scored = candidates(0.9, 0.2, 0.3, 0.1, texts=[0, 0, 0, 1], threshold=0.5)
    assert chosen(scored, min_sentences=2) == [0, 2]
    assert chosen(scored, min_sentences=9) == [0, 1, 2]


def test_no_sentence_is_looked_for_among_all_that_are_chosen(monkeypatch):
    class Ordered(list):
        def __contains__(self, _index):
            raise AssertionError("looked through the whole list")

    class Watched(selection._Chosen):
        def __init__(self, *args):
            super().__init__(*args)
            self.indices = Ordered()

    monkeypatch.setattr(selection, "_Chosen", Watched)
    scored = candidates(0.1, 0.9, 0.2, 0.8, 0.3, texts=[0, 0, 1, 1, 1], threshold=0.8)
    assert chosen(scored, min_sentences=2, context_sentences=1) == [0, 1, 2, 3, 4]


def test_context_comes_along_as_far_as_its_text_and_the_budget_go():
    scored = candidates(0.0, 0.0, 0.9, 0.0, 0.0, texts=[0, 0, 0, 0, 1])
    assert chosen(scored, top_k=1, context_sentences=2) == [0, 1, 2, 3]
    assert chosen(scored, top_k=1, context_sentences=2, max_length=21) == [1, 2]


def test_the_nearest_context_of_all_comes_before_the_farther_one():
    scored = candidates(0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.8, 0.0)
    assert chosen(scored, top_k=2, context_sentences=2, max_length=6 * 11, separator_length=1) == [1, 2, 3, 6, 7, 8]


def test_a_sentence_that_does_not_fit_is_cut_to_what_is_left():
    scored = [Candidate(0, 0.9, 10), Candidate(0, 0.6, 4), Candidate(0, 0.8, 90), Candidate(0, 0.7, 3)]
    assert select(scored, max_length=60, separator_length=3, cut_to_fit=True) == ([0, 2], 2, 47)
    assert select(scored, max_length=103, separator_length=3, cut_to_fit=True) == ([0, 2], None, 0)
    assert select(scored, max_length=8, cut_to_fit=True) == ([0], 0, 8)


def test_what_is_left_has_to_hold_a_part_that_says_something():
    scored = [Candidate(0, 0.9, 10), Candidate(1, 0.6, 2), Candidate(0, 0.8, 90)]
    assert select(scored, max_length=30, separator_length=3, cut_to_fit=True) == ([0, 1], None, 0)
    assert select(scored, max_length=31, separator_length=3, cut_to_fit=True) == ([0, 2], 2, 18)


def test_behind_a_cut_sentence_there_is_a_gap():
    scored = [Candidate(0, 0.8, 50), Candidate(0, 0.9, 10, gap=1)]
    assert select(scored, max_length=40, separator_length=3, cut_to_fit=True) == ([0, 1], 0, 27)


def test_a_sentence_that_only_its_gap_keeps_out_is_not_taken_whole():
    scored = [Candidate(0, 0.5, 4), Candidate(0, 0.9, 4, gap=3)]
    assert select(scored, max_length=9, separator_length=1, cut_to_fit=True) == ([0, 1], 0, 3)


def length_of(scored, selection, separator):
    total = 0
    for n, index in enumerate(selection.indices):
        total += selection.length if index == selection.cut else scored[index].length
        if n and scored[before := selection.indices[n - 1]].text == scored[index].text:
            total += scored[index].gap if before == index - 1 and before != selection.cut else separator
    return total


@settings(max_examples=150)
@given(st.data())
def test_whatever_is_asked_for_the_budget_holds(data):
    scored = []
    for text in range(data.draw(st.integers(1, 3))):
        first = len(scored)
        for _ in range(data.draw(st.integers(1, 8))):
            needs = data.draw(st.sets(st.integers(first, len(scored) - 1), max_size=2)) if len(scored) > first else ()
            length, gap = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 9))
            score, is_relevant = data.draw(st.sampled_from([0.0, 0.5, 1.0])), data.draw(st.booleans())
            scored.append(Candidate(text, score, length, gap, tuple(needs), is_relevant))
    separator, budget = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 120))
    selection = select(
        scored,
        max_length=budget,
        separator_length=separator,
        top_k=data.draw(st.sampled_from([None, 1, 3])),
        min_sentences=data.draw(st.integers(1, 3)),
        context_sentences=data.draw(st.integers(0, 2)),
        cut_to_fit=data.draw(st.booleans()),
    )
    assert selection.indices == sorted(set(selection.indices))
    if selection.cut is not None:
        assert 0 < selection.length < scored[selection.cut].length
    assert length_of(scored, selection, separator) <= budget or (len(selection.indices), selection.cut) == (1, None)
