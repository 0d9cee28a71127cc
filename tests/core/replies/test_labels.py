import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.replies.labels import read_labels

REPLIES = Path(__file__).parents[2] / "data" / "replies" / "rankings.txt"


def replies() -> list[tuple[str, str, str]]:
    """Read the replies: what is to become of each, what is wrong with it, its text."""
    parts = re.split(r"^--- (\w+): (.+)\n", REPLIES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    texts = [re.sub("@(\\d)@", r"\1", text).replace("@KEY@", "ranking").removesuffix("\n") for text in parts[2::3]]
    return list(zip(parts[0::3], parts[1::3], texts, strict=True))


@pytest.mark.parametrize(("fate", "title", "text"), replies())
def test_a_malformed_ranking_is_recovered_or_refused_and_never_misread(fate: str, title: str, text: str) -> None:
    if fate == "unreadable":
        with pytest.raises(ValueError, match="it "):
            read_labels(text, 5)
        return
    labels, _ = read_labels(text, 5)
    assert labels + [label for label in range(1, 6) if label not in labels] == [4, 2, 5, 1, 3], title


def test_there_are_forty_of_them() -> None:
    assert len(replies()) == 40


@pytest.mark.parametrize(
    "text",
    [
        "Documents 1, 2 and 3 are all irrelevant.",
        "Not relevant: 3, 1, 2",
        "Irrelevant:\n[3]\n[1]",
        "From least to most relevant: 1, 3, 2",
        "Worst to best:\n1\n3\n2",
        "[1] is irrelevant.\n[2] is great.\n[3] is fair.",  # a comment on each
        "1. Barley malts well\n2. Rye bread is dense\n3. Oats",  # ordinals or labels
        "1: 2\n2: 3\n3: 1",  # ranks or labels
        "The passages 3 and 1 were printed in 2019.",
        "In 2023 there were 3 > 2 of them.",
        "Passage 2 is best.",
        '{"ranking": [0.1, 0.9, 0.5]}',
        '{"ranking": [[2, 3], [3, 1], [1, 2]]}',
        '{"ranking": [9, 8, 3]}',  # more scores than labels
        '{"ranking": [1, 0]}',  # counted from 0 or not
        '{"ranking": []}',
        '{"irrelevant": [1, 3]}',
        '{"first": [1, 2], "second": [2, 1]}',
        "12345",
        "",
    ],
)
def test_what_can_be_read_in_two_ways_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="it "):
        read_labels(text, 3)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('{"ranking": [1, 2, 0]}', [2, 3, 1]),  # all of them, counted from 0
        ("Relevant:\n2, 3\nSomewhat relevant:\n1", [2, 3, 1]),  # tiers
        ('{"relevant": [2], "partly": [3, 1]}', [2, 3, 1]),
        ("Relevant: [2]\nIrrelevant:\n[1, 3]", [2]),
        ('{"relevant": [2], "irrelevant": [1, 3]}', [2]),
        ("Initial order: [1] > [2] > [3]\nFinal ranking: [2] > [3] > [1]", [2, 3, 1]),
        ("[3]\n[1]\n[3]\n[2]", [3, 1, 2]),  # the first mention wins
        ("| Rank | Passage |\n|---|---|\n| 1 | [2] |\n| 2 | [3] |\n| 3 | [1] |", [2, 3, 1]),
        ("[2] Barley malts well.\n[3] Rye bread.\n[1] Oats.", [2, 3, 1]),
        ('{"ranking": [[2, 0.9], [3, 0.5], [1, 0.1]]}', [2, 3, 1]),
        ('{"ranking": [[2], [3, 1]]}', [2, 3, 1]),
        ("2 (0.9), 3 (0.5), 1 (0.1)", [2, 3, 1]),
        ("Doc 1 (score 1), doc 2 (score 9), doc 3 (score 5)", [2, 3, 1]),
        ("<ranking>2, 3, 1</ranking>", [2, 3, 1]),
        ("Answer: \\boxed{2, 3, 1}", [2, 3, 1]),
        ("２、３、１".replace("、", ","), [2, 3, 1]),
        ("[2]", [2]),
    ],
)
def test_many_forms_are_read(text: str, labels: list[int]) -> None:
    assert read_labels(text, 3)[0] == labels


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ('{"ranking": [2, 1]}', False),
        ('```\n{"ranking": [2, 1]}\n```', False),
        ('{"ranking": [2, 1,]}', True),
        ('{"ranking": [2, 2, 1]}', True),
        ('{"ranking": [2, 9, 1]}', True),
    ],
)
def test_it_is_said_what_was_mended(text: str, mended: bool) -> None:
    assert read_labels(text, 2) == ([2, 1], mended)


@pytest.mark.parametrize("text", ["none", "None.", "[]", '{"ranking": []}', "No relevant passages", "0", "N/A"])
def test_none_is_an_answer_only_where_it_is_allowed(text: str) -> None:
    assert read_labels(text, 3, allow_none=True) == ([], False)
    with pytest.raises(ValueError, match="it "):
        read_labels(text, 3)


@pytest.mark.parametrize("text", ["", "<think>none", "None of the 3 passages mentions 2 of them"])
def test_silence_and_talk_are_not_none(text: str) -> None:
    with pytest.raises(ValueError, match="it names no label"):
        read_labels(text, 3, allow_none=True)


def test_ranges_are_spelled_out_where_they_are_allowed() -> None:
    assert read_labels("1, 3-5", 6, ranges=True)[0] == [1, 3, 4, 5]
    assert read_labels("Sentences 2 and 4–6", 6, ranges=True)[0] == [2, 4, 5, 6]
    with pytest.raises(ValueError, match="it names no label"):
        read_labels("1, 3-5", 6)


PARTS = [
    *"[]{}()<>:,;.=-|# \n\"'*",
    *("1", "2", "3", "12", "0.5", "3/5", "80%", "1e999", "NaN", "null", "true"),
    *(
        "Document ",
        "doc_",
        "and ",
        "none",
        "not ",
        "ranking",
        "score",
        "index",
        "<think>",
        "</think>",
        "```",
        "\\boxed",
    ),
]


@given(st.lists(st.sampled_from(PARTS), max_size=30), st.booleans(), st.booleans())
def test_whatever_a_reply_says_only_real_labels_come_out_each_once(
    parts: list[str], allow_none: bool, ranges: bool
) -> None:
    try:
        labels, _ = read_labels("".join(parts), 3, allow_none=allow_none, ranges=ranges)
    except ValueError:
        return
    assert len(set(labels)) == len(labels)
    assert set(labels) <= {1, 2, 3}
    assert labels or allow_none


@pytest.mark.parametrize(
    "text",
    ["[1] > " * 5000, "Document " * 5000, "9" * 50000, " " * 50000 + "1", '{"a":' * 900 + "1" + "}" * 900, "((" * 9000],
)
def test_long_replies_are_read_or_refused_at_once(text: str) -> None:
    try:
        labels, _ = read_labels(text, 3)
    except ValueError:
        return
    assert labels == [1]
