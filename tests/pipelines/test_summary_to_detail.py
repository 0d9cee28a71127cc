"""Summaries in the YAML pipelines: made while indexing, and searched before or beside the details."""

from pathlib import Path
from typing import Any

from index_states import check_trees, units_in

from haystack_adv_retrieval import SectionSummarizer, load_pipeline
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.pipelines import last_documents, run_pipeline

QUESTION = "How many days does it take until the refund for a station is paid?"
ANSWER = "Refunds are paid within 14 days of this."


def test_sections_are_chosen_by_their_summaries_and_blocks_returned(handbook_index: Path) -> None:
    pipeline = load_pipeline("summary", index=handbook_index)
    outputs = run_pipeline(pipeline, QUESTION)
    sections = outputs["router"]["sections"]
    assert {section.meta[chunks.UNIT] for section in sections} == {"summary"}
    assert 1 < len({section.meta[chunks.PARENT_ID] for section in sections}) == len(sections) <= 3
    assert {detail.meta[chunks.UNIT] for detail in outputs["retriever"]["documents"]} == {"leaf"}
    documents = last_documents(pipeline, outputs)
    assert {document.meta[chunks.UNIT] for document in documents} == {"block"}
    assert any(ANSWER in document.content for document in documents)


def test_a_filter_holds_for_summaries_and_details(handbook_index: Path) -> None:
    pipeline = load_pipeline("summary", index=handbook_index)
    department = {"field": "meta.department", "operator": "==", "value": "finance"}
    outputs = run_pipeline(pipeline, QUESTION, filters=department)
    found = [*outputs["router"]["sections"], *outputs["retriever"]["documents"], *last_documents(pipeline, outputs)]
    assert {document.meta["department"] for document in found} == {"finance"}


def test_details_outside_of_the_route_are_found_by_the_net_alone(handbook_index: Path) -> None:
    def found(safety_net: float) -> Any:
        overrides = {"router.top_k": 1, "retriever.safety_net": safety_net}
        outputs = run_pipeline(
            load_pipeline("summary", index=handbook_index, overrides=overrides), "expenses and hotels"
        )
        routed = outputs["router"]["sections"][0].meta[chunks.PARENT_ID]
        return {detail.meta[chunks.PARENT_ID] == routed for detail in outputs["retriever"]["documents"]}

    assert found(0.0) == {True}
    assert found(0.3) == {True, False}


def test_everything_is_searched_and_collapses_to_sections(handbook_index: Path) -> None:
    pipeline = load_pipeline("search_everything", index=handbook_index)
    outputs = run_pipeline(pipeline, QUESTION)
    assert {hit.meta[chunks.UNIT] for hit in outputs["retriever"]["documents"]} == {"leaf", "summary"}
    documents = last_documents(pipeline, outputs)
    assert {document.meta[chunks.UNIT] for document in documents} == {"block"}
    assert len({document.id for document in documents}) == len(documents) == 5
    assert any(ANSWER in document.content for document in documents)


def test_the_indexing_pipeline_takes_a_summarizer(handbook: Path, tmp_path: Path) -> None:
    reports = []
    for _ in range(2):
        pipeline = load_pipeline("indexing", index=tmp_path / "index")
        store: Any = pipeline.get_component("writer").document_store
        pipeline.add_component("summarizer", SectionSummarizer(document_store=store))
        pipeline.connect("splitter.parents", "summarizer.parents")
        pipeline.connect("summarizer.summaries", "diff.summaries")
        result = pipeline.run({"reader": {"sources": [str(handbook / "travel.md")]}}, {"summarizer"})
        reports.append((result["writer"]["report"]["added"], result["summarizer"]["report"]["reused"]))
    summaries = units_in(store, "summary")
    assert reports == [(1, 0), (0, len(summaries))]
    assert len(summaries) == len(units_in(store, "block"))
    check_trees(store)
    store.close()
