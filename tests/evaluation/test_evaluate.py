import json
import math

import pytest
from haystack import Document, Pipeline, component, tracing
from haystack.components.builders import PromptBuilder
from haystack.components.generators.chat import MockChatGenerator
from haystack.components.rankers import LLMRanker
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage

from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation.evaluate import evaluate, score
from haystack_adv_retrieval.evaluation.judge import Judge
from haystack_adv_retrieval.evaluation.metrics import Passage
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.strategies import Answer, passage, pipeline_strategy

BUDGETS = (40, 80, 160)


def document(start, end, text=None, **meta):
    content = "x" * (end - start) if text is None else text
    return Document(content=content, meta={"source_id": "a", "split_idx_start": start, "split_idx_end": end, **meta})


def test_pipelines_are_compared_with_the_baseline(bm25, questions):
    evaluation = evaluate({"pages": bm25(500), "words": bm25(8)}, questions, budgets=BUDGETS, top_k=2)
    assert evaluation.baseline == "pages"
    assert evaluation.main_metric == "recall@80"
    assert evaluation.ranking() == ["words", "pages"]
    assert evaluation.mean("words", "precision@80") > evaluation.mean("pages", "precision@80")
    assert evaluation.comparison("words", "recall@80").difference == pytest.approx(
        evaluation.mean("words", "recall@80") - evaluation.mean("pages", "recall@80")
    )
    assert evaluation.comparison("words", "recall@80").verdict == "no difference at this size"
    assert evaluation.summary().startswith("Between words and pages there is no difference at this size: recall@80 ")


def test_the_more_strategies_are_tried_the_surer_a_verdict_has_to_be():
    def lucky(question):
        return Answer([document(0, 10)] if int(question) < 6 else [])

    many = [Question(str(number), frozenset("a"), {"a": (Span(0, 10),)}) for number in range(40)]
    few = evaluate({"none": lambda _: Answer([]), "lucky": lucky}, many)
    assert few.comparison("lucky", "mrr").verdict == "better"
    assert few.summary().startswith("lucky is better than none: recall@2000 0.150 against 0.000, difference +0.150")
    crowd = evaluate({"none": lambda _: Answer([])} | {f"lucky {number}": lucky for number in range(30)}, many)
    assert crowd.comparison("lucky 1", "mrr").verdict == "no difference at this size"
    assert evaluate({"none": lambda _: Answer([])}, many).summary() == "none: recall@2000 0.000 on 40 questions."


def test_whole_sources_hold_all_the_gold(bm25, questions):
    evaluation = evaluate({"pages": bm25(500)}, questions, budgets=[10_000], top_k=3)
    assert evaluation.mean("pages", "recall@10000") == 1
    assert evaluation.mean("pages", "recall@top3") == 1
    assert evaluation.mean("pages", "hit@top3") == 1


def test_groups_are_averaged_on_their_own(bm25, questions):
    evaluation = evaluate({"words": bm25(8)}, questions, budgets=BUDGETS)
    assert evaluation.groups == ["facts", "dates"]
    facts = [
        one.scores["mrr"] for one, q in zip(evaluation.outcomes["words"], questions, strict=True) if q.group == "facts"
    ]
    assert evaluation.mean("words", "mrr", "facts") == pytest.approx(sum(facts) / 3)
    assert math.isnan(evaluation.mean("words", "mrr", "no such group"))


def test_the_result_is_plain_json(bm25, questions):
    result = evaluate({"a": bm25(20), "b": bm25(8)}, questions, budgets=BUDGETS).to_dict()
    loaded = json.loads(json.dumps(result, allow_nan=False))
    assert loaded == result
    assert loaded["strategies"]["b"]["against_baseline"]["mrr"]["verdict"] == "no difference at this size"
    assert loaded["strategies"]["a"]["against_baseline"] == {}
    assert set(loaded["strategies"]["a"]["seconds"]) == {"total", "retriever"}
    assert (
        loaded["strategies"]["a"]["seconds"]["total"]["p50"] >= loaded["strategies"]["a"]["seconds"]["retriever"]["p50"]
    )


def test_a_function_is_a_strategy_and_its_failures_score_zero(questions):
    def flaky(question):
        if "hotel" in question:
            raise TimeoutError("too slow")
        return Answer([])

    evaluation = evaluate({"flaky": flaky}, questions, budgets=BUDGETS)
    assert [one.error for one in evaluation.outcomes["flaky"]] == [None, None, "TimeoutError: too slow", None, None]
    assert evaluation.mean("flaky", "recall@80") == 0
    assert evaluation.to_dict()["strategies"]["flaky"]["errors"] == ["TimeoutError: too slow"]


def test_progress_is_told_after_every_answer(questions):
    steps = []
    strategies = {name: lambda _: Answer([]) for name in "ab"}
    evaluate(strategies, questions, advance=lambda: steps.append(1))
    assert len(steps) == 2 * len(questions)


@pytest.mark.parametrize(
    ("strategies", "options", "message"),
    [
        ({}, {}, "got 0 and 5"),
        ({"a": Answer}, {"baseline": "b"}, r"baseline must be one of \['a'\], got 'b'"),
        ({"a": Answer}, {"top_k": 0}, "must be positive, got 0"),
        ({"a": Answer}, {"budgets": (5, 0)}, r"must be positive, got 5 and \(5, 0\)"),
    ],
)
def test_wrong_arguments_are_refused(questions, strategies, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(strategies, questions, **options)


def test_results_are_cut_in_their_own_order_at_each_budget():
    question = Question("?", frozenset({"a"}), {"a": (Span(0, 10), Span(100, 110))})
    scores = score(question, [document(50, 100), document(95, 105), document(0, 40)], budgets=(55, 70), top_k=2)
    assert scores["recall@55"] == 0
    assert scores["recall@70"] == 15 / 20
    assert scores["precision@70"] == 15 / 70
    assert scores["recall@top2"] == 5 / 20
    assert (scores["mrr"], scores["hit@top2"]) == (1 / 2, 1)


def test_kept_spans_count_instead_of_the_whole_document():
    kept = document(0, 100, text="x" * 30, kept_spans=[[0, 10], [40, 60]])
    assert passage(kept) == Passage("a", (Span(0, 10), Span(40, 60)), 30)


def test_chunks_of_other_splitters_end_where_their_text_ends():
    assert passage(Document(content="abc", meta={"source_id": "a", "split_idx_start": 7})).spans == (Span(7, 10),)


def test_rewritten_text_has_a_length_but_no_span():
    assert passage(document(0, 100, text="a summary")) == Passage("a", (), 9)
    assert passage(Document(content="abc")) == Passage(None, (), 3)


def test_gold_sources_are_scored_without_spans():
    scores = score(Question("?", frozenset({"a", "b"})), [document(0, 5), document(5, 9)], budgets=(5,), top_k=5)
    assert (scores["recall@5"], scores["precision@5"], scores["mrr"]) == (1 / 2, 1, 1)


@component
class Rewriter:
    """Asks its model twice, as an expander of queries would."""

    def __init__(self, chat_generator):
        self.chat_generator = chat_generator

    @component.output_types(query=str)
    def run(self, text: str):
        pipeline = Pipeline()
        pipeline.add_component("nested", self.chat_generator)
        for _ in range(2):
            pipeline.run({"nested": {"messages": [ChatMessage.from_user(text)]}})
        return {"query": text}


def test_calls_and_tokens_of_nested_models_are_counted_once(bm25, questions):
    def chat(text):
        return MockChatGenerator(
            ChatMessage.from_assistant(text, meta={"usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        )

    store = bm25(8).get_component("retriever").document_store
    pipeline = Pipeline()
    pipeline.add_component("rewriter", Rewriter(chat("x")))
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("ranker", LLMRanker(chat_generator=chat('{"documents": [{"index": 2}, {"index": 1}]}')))
    pipeline.add_component("prompt", PromptBuilder("{{ documents[0].content }} {{ query }}"))
    pipeline.add_component("llm", chat("Noor has them."))
    pipeline.connect("rewriter.query", "retriever.query")
    pipeline.connect("retriever", "ranker")
    pipeline.connect("ranker.documents", "prompt.documents")
    pipeline.connect("prompt", "llm")

    before = tracing.tracer.actual_tracer
    evaluation = evaluate({"rag": pipeline}, questions[3:4], budgets=BUDGETS)
    assert tracing.tracer.actual_tracer is before
    [outcome] = evaluation.outcomes["rag"]
    assert outcome.trace.llm_calls == 4
    assert (outcome.trace.prompt_tokens, outcome.trace.completion_tokens) == (28, 12)
    assert list(outcome.trace.components) == ["rewriter", "retriever", "ranker", "prompt", "llm"]
    assert outcome.answer.reply == "Noor has them."
    assert [one.id for one in outcome.answer.documents][1::-1] == [
        one.id for one in bm25(8).run({"query": questions[3].text})["retriever"]["documents"]
    ][:2]
    assert outcome.context_length == sum(len(one.content) for one in outcome.answer.documents)


def test_summaries_met_on_the_way_are_measured():
    @component
    class Summaries:
        @component.output_types(documents=list[Document])
        def run(self, query: str):
            return {"documents": [document(0, 400, text="short", unit="summary", query=query)]}

    pipeline = Pipeline()
    pipeline.add_component("summaries", Summaries())
    evaluation = evaluate({"summaries": pipeline}, [Question("?", frozenset({"a"}))])
    assert list(evaluation.outcomes["summaries"][0].trace.summaries.values()) == [(400, 5)]


def test_a_pipeline_that_takes_no_question_fails_on_each_with_the_reason(questions):
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("{{ documents }}"))
    [outcome] = evaluate({"odd": pipeline}, questions[:1]).outcomes["odd"]
    assert outcome.error == "ValueError: No component of the pipeline has a free input for query"


def test_further_inputs_reach_the_pipeline(bm25):
    assert len(pipeline_strategy(bm25(8), top_k=2)("leave").documents) == 2


def test_the_judge_scores_the_triad_and_leaves_out_what_it_cannot_read(questions):
    def verdict(messages):
        text = messages[0].text
        if "statement_scores" in text:
            return '{"statements": ["a", "b"], "statement_scores": [1, 0]}'
        if "relevant_statements" in text:
            return (
                '{"relevant_statements": ["28 days"]}' if "28 days of leave" in text.split("Inputs:")[-1] else "no idea"
            )
        return '{"score": 0.5}'

    def strategy(question):
        replies = {questions[0].text: "28 days."}
        return Answer([Document(content="28 days of leave" if question in replies else "none")], replies.get(question))

    evaluation = evaluate({"a": strategy}, questions[:2], judge=Judge(MockChatGenerator(response_fn=verdict)))
    triad = {"context_relevance", "groundedness", "answer_relevance"}
    first, second = ({name: one.scores[name] for name in triad & set(one.scores)} for one in evaluation.outcomes["a"])
    assert first == {"context_relevance": 1, "groundedness": 0.5, "answer_relevance": 0.5}
    assert second == {}
    assert evaluation.mean("a", "groundedness") == 0.5
