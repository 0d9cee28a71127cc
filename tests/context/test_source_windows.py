from collections import Counter
from dataclasses import replace

import pytest
from trees import tree_of

from haystack_adv_retrieval.context import source_windows
from haystack_adv_retrieval.context.source_windows import Source, WindowRule, fused_windows
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span

HITS = 120


@pytest.fixture
def source() -> Source:
    """Every third sentence of a long text is a hit, so that windows of a sentence on each side touch."""
    leaves = tree_of("".join(f"Sentence number {number:04}. " for number in range(3 * HITS))).leaves
    hits = [replace(leaf, score=number * 37 % HITS / HITS) for number, leaf in enumerate(leaves[1::3])]
    return Source(hits, {leaf.meta[chunks.SPLIT_ID]: leaf for leaf in leaves})


@pytest.mark.parametrize("unit", ["character", "word"])
@pytest.mark.parametrize("max_length", [HITS * 25, 10**6])
def test_the_work_grows_with_the_hits_and_not_with_their_pairs(source, unit, max_length, monkeypatch):
    steps = Counter()

    def counted(name, work, size):
        def wrapped(*args):
            args = [list(arg) if name == "merge" else arg for arg in args]
            steps[name] += size(*args)
            return work(*args)

        return wrapped

    monkeypatch.setattr(source_windows, "merge", counted("merge", source_windows.merge, len))
    monkeypatch.setattr(source_windows, "length_of", counted("length_of", source_windows.length_of, lambda *_: 1))
    rule = WindowRule(1, "leaf", "source", "en")
    [windows] = fused_windows([source], source.hits, rule, max_length, unit)
    assert sum(len(window.hits) for window in windows) >= HITS // 3
    assert 0 < steps["length_of"] <= 3 * HITS
    assert 0 < steps["merge"] <= 5 * HITS


def test_only_pieces_near_a_span_are_looked_at(source, monkeypatch):
    looked_at = []
    overlaps = Span.overlaps
    monkeypatch.setattr(Span, "overlaps", lambda own, other: looked_at.append(own) or overlaps(own, other))
    span = Span(source.hits[60].meta[chunks.START], source.hits[61].meta[chunks.END])
    assert source.text(span) == "".join(f"Sentence number {number:04}. " for number in range(181, 185))
    assert len(looked_at) == 4


def test_a_long_piece_is_found_wherever_it_starts():
    tree = tree_of("One is short. Two is short too. Three.", block_sizes=[40, 3])
    [block] = tree.level(1)
    source = Source([block], {0: tree.leaves[0]})
    assert [piece.id for piece in source.pieces_of(Span(30, 31))] == [block.id]
    assert {piece.id for piece in source.pieces_of(Span(0, 1))} == {block.id, tree.leaves[0].id}
