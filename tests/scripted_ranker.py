"""A ranker that gives scores by rule: no model is as clear about what it prefers."""

from dataclasses import replace

from haystack import Document, component


@component
class ScriptedRanker:
    """Scores by position, or by the words that a text shares with the query."""

    def __init__(self, scores: list[float] | None = None, top_k: int = 10) -> None:
        self.scores = scores
        self.top_k = top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        words = set(query.casefold().split())
        scores = self.scores or [
            len(words & set(one.content.casefold().split())) / max(1, len(words)) for one in documents
        ]
        ranked = [replace(one, score=float(score)) for one, score in zip(documents, scores, strict=True)]
        ranked.sort(key=lambda one: -one.score)
        return {"documents": ranked[: top_k or self.top_k]}
