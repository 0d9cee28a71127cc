import pytest

from haystack_adv_retrieval.core.replies.choices import read_choice


@pytest.mark.parametrize(
    ("reply", "numbers"),
    [
        ("1, 3", [1, 3]),
        ("[3] and [1]", [3, 1]),
        ("2-4", [2, 3, 4]),
        ("0", []),
        ("None", []),
        ("Yes", [1, 2, 3, 4, 5]),
        ("No, none of them does.", []),
        ("<think>1? No.</think>\n4, 5", [4, 5]),
        ("1, 99", [1]),
    ],
)
def test_numbers_and_verdicts_are_read(reply, numbers):
    assert read_choice(reply, 5)[0] == numbers


@pytest.mark.parametrize(
    "reply", ["", "Perhaps", "I do not know", "No idea", "There is no telling", "Yes and no", "Nobody knows"]
)
def test_what_says_neither_is_refused(reply):
    with pytest.raises(ValueError, match="label"):
        read_choice(reply, 5)
