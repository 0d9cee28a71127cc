from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import handbook_texts, texts

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.sentences import paragraph_spans, sentence_spans, tile
from haystack_adv_retrieval.core.spans import Span

GOLD = Path(__file__).parents[1] / "data" / "sentences"
ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\f": "\f"}


def gold_cases():
    for path in sorted(GOLD.glob("*.txt")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        content = "\n".join(lines)
        for escape, character in ESCAPES.items():
            content = content.replace(escape, character)
        for case in content.split("\n===")[:-1]:
            text, _, sentences = case.strip("\n").partition("\n---\n")
            yield pytest.param(path.stem, text, sentences, id=f"{path.stem}: {text[:30]!a}")


@pytest.mark.parametrize(("language", "text", "sentences"), list(gold_cases()))
def test_sentences_are_found(language, text, sentences):
    # The text of a sentence may go over several lines, so the gold sentences are compared as one text.
    found = [span.text(text).strip() for span in sentence_spans(text, language)]
    assert "\n".join(found) == sentences


def check(text, spans, start=0):
    """The spans tile the text from `start` on, none of them blank, none torn out of a grapheme cluster."""
    assert "".join(span.text(text) for span in spans) == (text[start:] if text[start:].strip() else "")
    assert all(one.end == other.start for one, other in pairwise(spans))
    for span in spans:
        assert span.text(text).strip()
        assert is_grapheme_boundary(text, span.start)


@given(texts(), st.sampled_from(["en", "ja", "ar", "xx"]))
def test_sentences_and_paragraphs_tile_any_text(text, language):
    check(text, sentence_spans(text, language))
    check(text, paragraph_spans(text))


@given(st.text())
def test_sentences_tile_any_characters(text):
    check(text, sentence_spans(text))


@pytest.mark.parametrize("space", ["\x85", "\xa0", " \u2009", "\u2028", "\u3000"])
@pytest.mark.parametrize("language", ["en", "fr", "kk"])
def test_any_white_space_may_stand_before_a_full_stop(space, language):
    text = f"We chose plan B{space}. Then came the U.S.{space}. Done."
    check(text, sentence_spans(text, language))


@pytest.mark.parametrize("name", handbook_texts())
def test_sentences_tile_a_real_text(name):
    text = handbook_texts()[name]
    spans = sentence_spans(text)
    check(text, spans)
    assert max(span.length for span in spans) < 1_000


@given(texts(), st.lists(st.integers(-5, 200)))
def test_pieces_tile_what_is_cut(text, cuts):
    pieces = tile(text, cuts, Span(0, len(text)))
    check(text, pieces)
    assert {piece.start for piece in pieces[1:]} <= set(cuts)


def test_white_space_belongs_to_the_piece_before_it_and_at_the_start_to_the_first():
    assert tile(" \n a  b ", [1, 2, 4, 5, 6], Span(0, 8)) == [Span(0, 6), Span(6, 8)]


def test_lines_that_are_too_long_to_be_wrapped_are_paragraphs():
    line = "word " * 40
    assert len(paragraph_spans(f"{line}\n{line}\nshort\n")) == 3
    assert len(paragraph_spans("short line\n" * 5)) == 1


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_long_paragraph_has_the_sentences_that_it_has_alone(language):
    # Punctuation as dense as this takes the library quadratic time.
    sentence = "我们在山上的小站等车。" if language == "ja" else "He came, e.g. by (slow) train, at 5 p.m. on Monday. "
    text = sentence * 2_000
    spans = sentence_spans(text, language)
    assert {span.text(text) for span in spans} == {sentence}


@pytest.mark.parametrize(
    "unit", ["`", "“", "山。", "「a。", "x. “y. ", "w", "a. ", "\n", "\r\n", " ", "\f", "🇵", "\u0301", "\ud800"]
)
def test_long_runs_of_anything_are_split_in_linear_time(unit):
    text = unit * (100_000 // len(unit))
    check(text, sentence_spans(text))
