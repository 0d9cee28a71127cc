import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import TEXTS

from haystack_adv_retrieval.context.budgets import ruler_of
from haystack_adv_retrieval.core.excerpts import excerpt
from haystack_adv_retrieval.core.rulers import CharacterRuler
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span

TEXT = "One is first. Two comes next. Three is in the middle. Four follows. Five is last."


def cut(text: str, focus: str, max_length: int, unit: str = "character") -> str:
    start = text.index(focus)
    return excerpt(text, Span(start, start + len(focus)), max_length, ruler_of(text, unit)).text(text)


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (23, "Three is in the middle."),
        (37, "Three is in the middle. Four follows."),
        (53, "Two comes next. Three is in the middle. Four follows."),
        (52, "Three is in the middle. Four follows. Five is last."),
        (67, "Two comes next. Three is in the middle. Four follows. Five is last."),
        (500, TEXT),
    ],
)
def test_what_follows_the_focus_is_added_before_what_precedes_it(max_length, expected):
    assert cut(TEXT, "Three is in the middle. ", max_length) == expected


def test_the_budget_may_be_words():
    assert cut(TEXT, "Three", 7, "word") == "Three is in the middle. Four follows."


def test_a_focus_inside_a_sentence_brings_the_whole_sentence():
    assert cut(TEXT, "the middle", 30) == "Three is in the middle."


def test_of_a_focus_that_is_too_long_the_first_sentences_are_kept():
    assert cut(TEXT, "Two comes next. Three is in the middle. Four follows. ", 40) == (
        "Two comes next. Three is in the middle."
    )


def test_of_a_sentence_that_is_too_long_the_words_from_the_focus_on_are_kept():
    assert cut("It says that refunds are due after the parcel has arrived", "refunds are", 20) == "refunds are due"


def test_an_endless_word_is_cut_between_characters_as_a_reader_sees_them():
    family = "👩‍👩‍👧"
    assert cut(family * 9, family, 12) == family * 2


def test_a_blank_text_has_no_excerpt():
    text = " \n\t "
    assert excerpt(text, Span(0, len(text)), 2, CharacterRuler(text)) == Span(0, 0)


@given(TEXTS, st.data(), st.integers(1, 60), st.sampled_from(["character", "word"]))
def test_an_excerpt_fits_has_no_white_space_around_it_and_starts_where_it_matters(text, data, max_length, unit):
    focus = data.draw(st.sampled_from(sentence_spans(text)))
    focus = Span(data.draw(st.integers(focus.start, focus.end - 1)), focus.end)
    ruler = ruler_of(text, unit)
    span = excerpt(text, focus, max_length, ruler)
    content = span.text(text)
    assert content == content.strip()
    assert (len(content) if unit == "character" else ruler.count(*span)) <= max_length
    assert content or not focus.text(text).strip()
    assert span.start <= focus.start or not text[focus.start : span.start].strip()


@given(TEXTS, st.data(), st.integers(1, 60))
def test_an_excerpt_is_whole_sentences_if_the_first_one_that_matters_fits(text, data, max_length):
    sentences = sentence_spans(text)
    focus = data.draw(st.sampled_from(sentences))
    span = excerpt(text, focus, max_length, CharacterRuler(text))
    if len(focus.text(text).strip()) <= max_length:
        touched = [sentence for sentence in sentences if sentence.overlaps(span)]
        assert span.text(text) == text[touched[0].start : touched[-1].end].strip()
        assert focus in touched
        for more in (touched[0].start, touched[-1].end):
            assert any(more in sentence for sentence in sentences)
