from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import handbook_texts, texts

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.structure import find_blocks


def kinds(text, structure="markdown"):
    return [(block.kind, block.span.text(text)) for block in find_blocks(text, structure)]


def check(text, structure):
    blocks = find_blocks(text, structure)
    assert "".join(block.span.text(text) for block in blocks) == (text if text.strip() else "")
    assert all(block.span.text(text).strip() for block in blocks)
    assert all(one.span.end == other.span.start for one, other in pairwise(blocks))
    assert all(is_grapheme_boundary(text, block.span.start) for block in blocks)
    return blocks


@given(texts(), st.sampled_from(["auto", "markdown", "plain"]))
def test_blocks_tile_any_text(text, structure):
    check(text, structure)


@given(st.text("#`~|->=.1 \n\r\t\fab", max_size=60))
def test_blocks_tile_whatever_looks_like_markdown(text):
    check(text, "markdown")


@pytest.mark.parametrize("name", handbook_texts())
def test_blocks_tile_a_real_text(name):
    check(handbook_texts()[name], "auto")


def test_each_kind_of_block_is_found():
    text = (
        "---\ntitle: Terms\n---\n# Setup\n\nInstall it\nfirst.\n\nUse\n---\n\n- one\n- two\n  more\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\n# no heading\n\nrun\n```\n\n> quoted\n"
    )
    assert kinds(text) == [
        ("front_matter", "---\ntitle: Terms\n---\n"),
        ("heading", "# Setup\n\n"),
        ("paragraph", "Install it\nfirst.\n\n"),
        ("heading", "Use\n---\n\n"),
        ("item", "- one\n"),
        ("item", "- two\n  more\n\n"),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |\n\n"),
        ("code", "```sh\n# no heading\n\nrun\n```\n\n"),
        ("paragraph", "> quoted\n"),
    ]


def test_a_heading_has_a_depth_and_a_title_and_a_table_its_header():
    blocks = find_blocks("### Net *income* ###\n\nSub\n---\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert [(block.depth, block.title) for block in blocks] == [(3, "Net *income*"), (2, "Sub"), (0, "| a | b |")]


def test_a_number_sign_in_a_fence_is_no_heading():
    text = "~~~\n# a\n~~~\n```\n# b\n~~~\n# c\n```\n# d\n"
    assert [kind for kind, _ in kinds(text)] == ["code", "code", "heading"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_structure_does_not_depend_on_how_lines_end(end):
    text = "# One\n\ntext\n\n- item\n- item\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo\n===\n"
    blocks = [(kind, content.replace(end, "\n")) for kind, content in kinds(text.replace("\n", end))]
    assert blocks == kinds(text)


@pytest.mark.parametrize("structure", ["auto", "markdown"])
@pytest.mark.parametrize("gap", ["\f", "\n\f", "\f\f", "\r\f", "\r\n\f"])
def test_a_heading_may_open_a_page(structure, gap):
    text = f"\f# One\n\nfirst{gap}## Two ##\fsecond"
    assert [(block.kind, block.span.text(text), block.title) for block in find_blocks(text, structure)] == [
        ("heading", "\f# One\n\n", "One"),
        ("paragraph", f"first{gap}", ""),
        ("heading", "## Two ##\f", "Two"),
        ("paragraph", "second", ""),
    ]


def test_a_table_may_go_on_behind_a_page_break():
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\f| 3 | 4 |\f| 5 | 6 |\n"
    assert kinds(text) == [("table", text)]


def test_a_quoted_heading_or_one_in_a_list_opens_no_section():
    assert "heading" not in {kind for kind, _ in kinds("> # Quoted\n\n- # In a list\n")}


def test_indented_text_is_no_code():
    assert kinds("    indented\n\nmore\n") == [("paragraph", "    indented\n\n"), ("paragraph", "more\n")]


@pytest.mark.parametrize(
    ("text", "is_markdown"),
    [
        ("# Heading\ntext", True),
        ("text\n```\ncode\n```\n", True),
        ("a | b\n--- | ---\n1 | 2\n", True),
        ("---\ntitle: x\n---\ntext", True),
        ("#hashtag and #another", False),
        ("- a list\n- alone", False),
        ("1995 - 1997 --- a dash", False),
        ("--- a\n+++ b\n", False),
    ],
)
def test_markdown_is_told_from_plain_text(text, is_markdown):
    assert (kinds(text, "auto") == kinds(text, "markdown") != kinds(text, "plain")) == is_markdown


def test_plain_text_ends_paragraphs_at_blank_lines_and_pages():
    assert kinds("# one\ntwo\n \nthree\ffour", "plain") == [
        ("paragraph", "# one\ntwo\n \n"),
        ("paragraph", "three\f"),
        ("paragraph", "four"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "---\r\n" + "\r\n" * 30_000,
        "---\n" + "a: b\n" * 20_000,
        ">" * 30_000,
        "- " * 20_000,
        "".join("  " * (depth % 60) + "- item\n" for depth in range(3_000)),
        "".join(">" * (depth % 200) + " q\n" for depth in range(400)),
        "|" * 50_000,
        "|" + " c |" * 5_000 + "\n|" + "---|" * 5_000 + "\n|" + " v |" * 5_000,
        "`" * 50_000,
        "```\n" + "code\n" * 20_000,
        "[" * 50_000,
        "\f" * 50_000,
        ("a" + "\n" * 500) * 200,
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize("structure", ["auto", "markdown"])
def test_deep_and_long_structures_take_linear_time(text, structure):
    check(text, structure)
