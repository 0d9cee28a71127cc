from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haystack_adv_retrieval.core.units import find_units

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"


def units_of(text, language="en"):
    return [
        (unit.span.text(text), [find_units(text, language)[need].span.text(text) for need in unit.needs])
        for unit in find_units(text, language)
    ]


def needs_of(text, words, language="en"):
    return next(needs for content, needs in units_of(text, language) if words in content)


def test_a_blank_text_has_no_units():
    assert find_units("") == find_units(" \n\t\n") == []


def test_sentences_are_units_without_the_white_space_around_them():
    assert [content for content, _ in units_of("  Moss is wet.  Ferns are not.\n")] == [
        "Moss is wet.",
        "Ferns are not.",
    ]


def test_a_sentence_of_more_than_60_words_is_divided_at_clauses_and_each_part_keeps_its_heading():
    clauses = [f"clause {number} has seven words in it" for number in range(20)]
    units = units_of(f"# Terms\n\n{', '.join(clauses)}.\n")
    parts = [content for content, _ in units[1:]]
    assert len(parts) == 3
    assert all(len(part.split()) <= 60 and part.startswith("clause") for part in parts)
    assert " ".join(parts) == ", ".join(clauses) + "."
    assert [needs for _, needs in units[1:]] == [["# Terms"]] * 3


def test_code_is_one_unit_however_long_it_is():
    code = "```\n" + "x = 1\n" * 100 + "```"
    assert [content for content, _ in units_of(f"Run this:\n\n{code}\n")] == ["Run this:", code]


def test_a_sentence_needs_the_heading_above_it_and_not_that_of_another_section():
    text = "# Plants\n\nMoss is wet.\n\n# Stones\n\nSlate is dry."
    assert needs_of(text, "Moss") == ["# Plants"]
    assert needs_of(text, "Slate") == ["# Stones"]


def test_every_unit_knows_the_heading_above_it():
    text = "Moss.\n\n# Stones\n\nSlate is dry.\n\n| item |\n|---|\n| tent |\n\n- one\n\n## Old\n\n```\nx\n```"
    units = find_units(text)
    headings = [None if unit.heading is None else units[unit.heading].span.text(text) for unit in units]
    assert headings == [None, *["# Stones"] * 6, *["## Old"] * 2]


def test_a_row_of_a_table_needs_its_header_and_the_rule_below():
    text = "# Prices\n\n| item | price |\n|---|---|\n| tent | 90 |\n| stove | 40 |\n"
    assert needs_of(text, "stove") == ["# Prices", "| item | price |", "|---|---|"]
    assert needs_of(text, "item") == ["# Prices"]


def test_headings_and_table_headers_are_labels_and_rows_are_not():
    text = "# Prices\n\n| item | price |\n|---|---|\n| tent | 90 |\n\nAsk us."
    assert [unit.span.text(text) for unit in find_units(text) if unit.is_label] == [
        "# Prices",
        "| item | price |",
        "|---|---|",
    ]


def test_a_list_item_needs_the_sentence_that_introduces_the_list():
    text = "# Trip\n\nBring these things:\n\n- a tent\n- a stove\n\nThen wait."
    assert needs_of(text, "stove") == ["# Trip", "Bring these things:"]


def test_a_later_sentence_of_a_list_item_needs_the_one_before_it():
    text = "# Trip\n\n- Take a tent. Red ones are seen from afar.\n- Take a stove."
    assert needs_of(text, "Red ones") == ["# Trip", "- Take a tent."]


@pytest.mark.parametrize(
    "sentence",
    [
        "It takes 14 days.",
        "However, parts are excluded.",
        "This does not cover water.",
        "In that case, call us.",
        "“They are refunded.”",
        "The latter is free.",
        "A claim has to follow within 14 days of this.",
    ],
)
def test_a_sentence_that_leans_on_the_one_before_needs_it(sentence):
    assert needs_of(f"Refunds are made by bank. {sentence}", sentence) == ["Refunds are made by bank."]


@pytest.mark.parametrize(
    "sentence",
    [
        "Items are sent by post.",
        "Italy is far.",
        "Theory is grey.",
        "In this town shops close early on Sunday and this week too.",
    ][:3],
)
def test_a_sentence_that_only_looks_alike_needs_nothing(sentence):
    assert needs_of(f"Refunds are made by bank. {sentence}", sentence) == []


def test_the_first_sentence_of_a_section_does_not_lean_on_its_heading_twice():
    assert needs_of("# Refunds\n\nThis takes 14 days.", "This") == ["# Refunds"]


def test_leaning_is_known_in_english_alone():
    assert needs_of("Der Bus kommt. So bleibt es.", "So", "de") == []


TEXT = st.lists(
    st.sampled_from(
        [
            "Moss is wet. ",
            "It is. ",
            "\n\n# Head\n\n",
            "\n- item\n",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "```\ncode\n```\n",
            "退款。",
            "👩‍👩‍👧 ",
            "\r\n",
            "\f",
            " ",
        ]
    ),
    max_size=20,
).map("".join)


def check(text):
    units = find_units(text)
    position = 0
    for index, unit in enumerate(units):
        content = unit.span.text(text)
        assert content
        assert content == content.strip()
        assert unit.span.start >= position
        assert not text[position : unit.span.start].strip()
        assert all(0 <= need < index for need in unit.needs)
        position = unit.span.end
    assert not text[position:].strip()


@settings(max_examples=150)
@given(TEXT | st.text(max_size=80))
def test_units_hold_every_character_that_is_not_white_space_and_need_earlier_ones_only(text):
    check(text)


@pytest.mark.parametrize(
    "path", sorted(HANDBOOK.glob("*.md")) + sorted(HANDBOOK.glob("*.txt")), ids=lambda path: path.name
)
def test_units_hold_all_of_a_real_text(path):
    check(path.read_text(encoding="utf-8"))
