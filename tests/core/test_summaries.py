import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.summaries import central_sentences, word_vectors

TEXT = [
    "Refunds of any order are paid within fourteen days after the parcel has arrived here.",
    "Refunds of an order are paid to the card that the order was paid with.",
    "The canteen serves soup on Tuesdays and fish on Fridays, as it always did.",
    "Refunds of any order are paid within fourteen days after the parcel has arrived there.",
    "Refunds.",
]
SENTENCES = st.lists(st.text(st.sampled_from("ab .é退"), max_size=12), max_size=8)


def chosen(sentences, count):
    return central_sentences(sentences, word_vectors(sentences), count)


def test_what_most_sentences_are_about_is_chosen_first():
    assert chosen(TEXT, 1)[0] in (0, 1, 3)


def test_a_sentence_that_repeats_another_is_not_chosen_beside_it():
    assert not {0, 3} <= set(chosen(TEXT, 2))


def test_a_heading_alone_says_little():
    assert 4 not in chosen(TEXT, 3)


def test_vectors_decide_where_they_are_given():
    vectors = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
    same = ["one two three four five six seven eight"] * 5
    assert central_sentences(same, vectors, 1) == [1]


@given(SENTENCES, st.integers(1, 5))
def test_as_many_as_asked_for_in_order_and_each_once(sentences, count):
    indices = chosen(sentences, count)
    assert indices == sorted(set(indices))
    assert len(indices) == min(count, len(sentences))
    assert set(indices) <= set(range(len(sentences)))
    assert indices == chosen(sentences, count)


@given(SENTENCES)
def test_word_vectors_have_length_one_or_no_words(sentences):
    vectors = word_vectors(sentences)
    assert len(vectors) == len(sentences)
    for sentence, length in zip(sentences, np.linalg.norm(vectors, axis=1), strict=True):
        assert length == pytest.approx(1.0 if sentence.strip(" .") else 0.0)


def test_word_vectors_ignore_case_and_weigh_rare_words_more():
    one, two, three = word_vectors(["the Refund", "the refund", "the soup"])
    assert one @ two == pytest.approx(1.0)
    assert one @ three < 0.5


def test_a_long_text_needs_little_memory():
    vectors = word_vectors([f"word{number} and other{number}" for number in range(3000)])
    assert vectors.nbytes < 100_000_000
    assert vectors[0] @ vectors[0] == pytest.approx(1.0)
