from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from texts import handbook_texts, texts

from haystack_adv_retrieval.core.graphemes import LONGEST_CLUSTER, end_of_cluster
from haystack_adv_retrieval.core.hierarchy import Hierarchy
from haystack_adv_retrieval.core.rulers import CharacterRuler, UnitRuler, word_starts
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.structure import find_blocks

RULERS = {"word": lambda text: UnitRuler(word_starts(text), len(text)), "character": CharacterRuler}


def levels_of(text, sizes, *, unit="word", structure="auto", sentence_leaves=False, overlap=0):
    """For each level the children of each piece of the level above."""
    hierarchy = Hierarchy(text, find_blocks(text, structure), RULERS[unit](text))
    return [
        [[Span(*piece) for piece in pieces[first:last]] for first, last in pairwise(borders)]
        for pieces, borders in hierarchy.levels(sizes, sentence_leaves=sentence_leaves, overlap=overlap)
    ]


def leaves_of(text, *sizes, **options):
    return [span.text(text) for siblings in levels_of(text, sizes, **options)[-1] for span in siblings]


def inside_clusters(text):
    """Where a cut would tear a grapheme cluster of a length that languages have."""
    clusters = [match.span() for match in regex.finditer(r"\X", text)]
    return {cut for start, end in clusters if end - start <= LONGEST_CLUSTER for cut in range(start + 1, end)}


def check(text, sizes, unit, levels, overlap=0):
    """The invariants of a hierarchy, whatever the text."""
    ruler, torn = RULERS[unit](text), inside_clusters(text)
    parents = None
    for level, (size, families) in enumerate(zip(sizes, levels, strict=True), start=1):
        spans = [span for siblings in families for span in siblings]
        fresh = [max(span.start, before.end) for before, span in pairwise(spans)]
        assert "".join(text[start : span.end] for start, span in zip([0, *fresh], spans, strict=True)) == text
        if not (overlap and level == len(sizes)):
            assert all(one.end == other.start for one, other in pairwise(spans))
        assert all(one.start < other.start and one.end < other.end for one, other in pairwise(spans))
        for parent, siblings in zip(parents or [], families, strict=parents is not None):
            assert (siblings[0].start, siblings[-1].end) == parent
        for span in spans:
            assert span.text(text).strip()
            assert span.start not in torn
            visible = span.text(text).strip()
            is_cluster = end_of_cluster(visible, 0, len(visible)) == len(visible) <= LONGEST_CLUSTER
            assert ruler.count(*span) <= size or is_cluster
        parents = spans


sizes = st.lists(st.sampled_from([1, 2, 3, 5, 8, 13, 40, 100, 300]), min_size=1, max_size=3, unique=True).map(
    lambda values: sorted(values, reverse=True)
)


@given(texts(), sizes, st.data())
def test_every_level_tiles_any_text_within_its_size(text, sizes, data):
    unit = data.draw(st.sampled_from(["word", "character"]))
    overlap = data.draw(st.integers(0, min(2, sizes[-1] - 1)))
    structure, sentences = data.draw(st.sampled_from(["auto", "plain", "markdown"])), data.draw(st.booleans())
    levels = levels_of(text, sizes, unit=unit, structure=structure, sentence_leaves=sentences, overlap=overlap)
    if text.strip():
        check(text, sizes, unit, levels, overlap)
    else:
        assert levels == [[] for _ in sizes]


@pytest.mark.parametrize("name", handbook_texts())
@pytest.mark.parametrize("unit", RULERS)
@pytest.mark.parametrize(
    ("sizes", "sentence_leaves", "overlap"), [((900, 150), 1, 0), ((512, 128, 32), 0, 0), ((80, 9), 0, 2)]
)
def test_every_level_tiles_a_real_text_within_its_size(name, unit, sizes, sentence_leaves, overlap):
    text = handbook_texts()[name]
    check(
        text, sizes, unit, levels_of(text, sizes, unit=unit, sentence_leaves=sentence_leaves, overlap=overlap), overlap
    )


@pytest.mark.parametrize(
    "unit",
    ["a", "🇵", "\u0301", "\u200d", "\u0600", " \u0301", "가", "\u1112\u1161\u11ab", "山。", "a\n", "# h\n", "a\u2028"],
)
@pytest.mark.parametrize("sizes", [(900, 150), (50, 5)])
@pytest.mark.parametrize("ruler", RULERS)
def test_runs_of_anything_are_cut_in_linear_time(unit, sizes, ruler):
    text = unit * (10_000 // len(unit))
    check(text, sizes, ruler, levels_of(text, sizes, unit=ruler))


def test_white_space_of_any_length_is_passed_over():
    text = "    " + "a" * 9 + " " * 50_000 + "b\r\n\r\n\r\n\u0301" + "\n" * 50_000 + "c"
    check(text, (8, 2), "character", levels_of(text, (8, 2), unit="character"))


# Where cuts are made


def test_a_section_that_fits_is_one_block():
    one, two = "# One\n\n" + "word " * 30 + "\n\n", "# Two\n\n" + "word " * 30
    assert leaves_of(one + two, 50) == [one, two]


def test_small_sections_share_a_block():
    text = "# One\n\nshort\n\n# Two\n\nshort\n\n# Three\n\n" + "word " * 30
    assert leaves_of(text, 60) == [text]
    assert len(leaves_of(text, 36)) == 2


def test_a_heading_is_never_left_behind_at_the_end_of_a_block():
    text = "".join(f"## Part {part}\n\n" + "A few words here. " * 12 + "\n\n" for part in range(8))
    assert all(leaf.startswith("## Part") for leaf in leaves_of(text, 120))


def test_paragraphs_come_before_sentences_and_sentences_before_words():
    text = "One two three. Four five six.\n\nSeven eight nine. Ten eleven twelve."
    assert leaves_of(text, 10) == ["One two three. Four five six.\n\n", "Seven eight nine. Ten eleven twelve."]
    assert [leaf.strip() for leaf in leaves_of(text, 4)] == [
        *("One two three.", "Four five six.", "Seven eight nine.", "Ten eleven twelve.")
    ]


def test_a_long_sentence_is_cut_at_a_clause_and_not_inside_a_number():
    text = "We sold 1,234,567 lamps in the north of the country, which pleased nearly everybody who works for us here"
    assert leaves_of(text, 13) == [text[:53], text[53:]]
    assert leaves_of("a b c d e f g h", 4) == ["a b c d ", "e f g h"]


def test_the_last_two_blocks_are_balanced():
    lengths = [len(leaf.split()) for leaf in leaves_of("word " * 105, 50)]
    assert len(lengths) == 3
    assert abs(lengths[1] - lengths[2]) <= 1


def test_a_table_is_cut_between_rows_and_only_if_it_is_too_large():
    table = "| item | price |\n|---|---|\n" + "".join(f"| bolt {row} | {row} euros |\n" for row in range(9))
    text = f"Prices:\n\n{table}\nEnd note."
    assert any(table in leaf for leaf in leaves_of(text, 80))
    leaves = leaves_of(text, 20)
    assert len(leaves) > 3
    assert all(leaf.endswith("|\n") or "note" in leaf or "Prices" in leaf for leaf in leaves)


def test_a_word_or_a_row_is_not_torn_to_balance_the_last_two_blocks():
    text = "a b c d " + "https://fieldpost.example/" + "x" * 70 + " e"
    assert leaves_of(text, 6) == ["a b c d ", text[8:]]


def test_code_is_cut_between_lines_and_only_if_it_is_too_large():
    code = "```python\n" + "".join(f"def f{line}(a, b): return a. b\n" for line in range(9)) + "```\n"
    assert leaves_of(code, 100) == [code]
    assert all(leaf.endswith("\n") and leaf.count("\n") > 1 for leaf in leaves_of(code, 18))


def test_with_sentence_leaves_each_sentence_is_one_and_marks_alone_join_a_neighbour():
    text = "# Terms\n\nFirst one. Second one.\n\n---\n\n- item one\n- item two\n"
    assert [leaf.strip() for leaf in leaves_of(text, 100, 20, sentence_leaves=True)] == [
        *("# Terms", "First one.", "Second one.", "---\n\n- item one", "- item two")
    ]


def test_sentence_leaves_are_the_sentences_of_a_real_text():
    text = handbook_texts()["reseller-agreement.txt"]
    assert leaves_of(text, 2_000, 400, sentence_leaves=True) == [span.text(text) for span in sentence_spans(text)]


def test_leaves_repeat_sentences_of_the_one_before_within_their_parent_and_size():
    text = "One two. Three four. Five six. Seven eight.\n\n# Next\n\nNine ten. Eleven twelve. Thirteen fourteen."
    [first, second] = levels_of(text, (12, 4), structure="markdown", overlap=1)[-1]
    assert [span.text(text) for span in first][:3] == [
        *("One two. Three four. ", "Three four. Five six. ", "Five six. Seven eight.\n\n")
    ]
    assert second[0].text(text).startswith("# Next")
