import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from texts import texts

from haystack_adv_retrieval.core.graphemes import end_of_cluster, is_grapheme_boundary

# One of every class of UAX #29, so that every rule is met with every neighbour.
CHARACTERS = "a \r\n\t\x00\u0301\u200d\u0903\u0600\u1100\u1161\u11a8가각🇵🇹👩🚒🏽©क्िकำ\ufe0f\u200b\u00ad\ud800❤ൎক্"


@pytest.mark.parametrize(
    "cluster", ["\r\n", "e\u0301", "👩‍🚒", "🧗🏽‍♀️", "🇵🇹", "한", "\u1112\u1161\u11ab", "क्ष", "กำ", "❤\ufe0f"]
)
def test_a_cluster_is_not_torn(cluster):
    text = f"a{cluster}{cluster}b"
    inside = [position for position in range(len(text) + 1) if not is_grapheme_boundary(text, position)]
    borders = {0, 1, 1 + len(cluster), 1 + 2 * len(cluster), len(text)}
    assert inside == [position for position in range(len(text)) if position not in borders]


@given(st.text(st.sampled_from(CHARACTERS), max_size=12) | texts(longest=6), st.data())
def test_boundaries_are_those_of_unicode(text, data):
    starts = [match.start() for match in regex.finditer(r"\X", text)]
    boundaries = {*starts, len(text)}
    floor = data.draw(st.sampled_from(sorted(boundaries)))
    for position in range(len(text) + 1):
        assert is_grapheme_boundary(text, position) == (position in boundaries)
        if position >= floor:
            assert is_grapheme_boundary(text, position, floor) == (position in boundaries)


def test_an_odd_flag_half_stays_alone_at_the_end_of_a_long_run():
    text = "🇵" * 401
    assert [position for position in range(402) if is_grapheme_boundary(text, position)] == [*range(0, 401, 2), 401]


def test_the_end_of_a_cluster_is_looked_for_up_to_a_limit():
    text = "x👩‍🚒y" + "\u0301" * 500
    assert end_of_cluster(text, 1, 60) == 4
    assert end_of_cluster(text, 4, 60) == 60
