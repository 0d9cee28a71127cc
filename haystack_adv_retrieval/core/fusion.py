"""Making one ranking out of several."""

from collections.abc import Sequence


def fused_scores(rankings: Sequence[Sequence[str]], weights: Sequence[float]) -> dict[str, float]:
    """
    Score items by their weighted reciprocal ranks, `sum(weight / rank)`.

    The constant of reciprocal rank fusion (Cormack, Clarke, Buettcher: Reciprocal Rank Fusion, 2009) is 0 here: with
    the usual 60, whatever two rankings agree on, at any depth, comes before the best of a ranking that stands alone.

    :param rankings: Ids, best first, none twice in a ranking.
    :param weights: How much each ranking counts.
    :returns: The scores by id, in order of first appearance.
    """
    scores: dict[str, float] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, each in enumerate(ranking, start=1):
            scores[each] = scores.get(each, 0.0) + weight / rank
    return scores
