import pytest

from haystack_adv_retrieval.core.outline import Outline
from haystack_adv_retrieval.core.structure import find_blocks

TEXT = (
    "Before.\n\n# Setup\n\nInstall.\f\n\n### Deep\n\nDetails.\n\n## Use\n\nCall.\f"
    "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAfter.\n\n# End\n\nBye."
)


@pytest.fixture(scope="module")
def outline():
    return Outline(TEXT, find_blocks(TEXT))


@pytest.mark.parametrize(
    ("words", "page", "headings"),
    [
        ("Before.", 1, ""),
        ("# Setup", 1, "Setup"),
        ("Install.", 1, "Setup"),
        ("\f\n\n### Deep", 1, "Setup"),
        ("### Deep", 2, "Setup > Deep"),
        ("Details.", 2, "Setup > Deep"),
        ("Call.", 2, "Setup > Use"),
        ("After.", 3, "Setup > Use"),
        ("Bye.", 3, "End"),
    ],
)
def test_a_position_has_a_page_and_the_headings_above_it(outline, words, page, headings):
    meta = outline.at(TEXT.index(words))
    assert (meta["page_number"], meta["headings"]) == (page, headings)
    assert "table_header" not in meta


def test_rows_know_the_header_of_their_table_and_the_header_row_does_not(outline):
    assert "table_header" not in outline.at(TEXT.index("| a"))
    assert outline.at(TEXT.index("| 1"))["table_header"] == "| a | b |"
    assert "table_header" not in outline.at(TEXT.index("After"))
