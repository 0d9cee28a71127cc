import pytest
from haystack import Document

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.llm.prompts import Prompt, harmless, quoted, shown


def test_a_template_says_which_variables_it_misses_or_invents() -> None:
    with pytest.raises(ValueError, match=r"prompt must use.*misses \['documents'\]"):
        Prompt("{{ query }}", {"query", "documents"})
    with pytest.raises(ValueError, match=r"prompt may use.*not \['model'\]"):
        Prompt("{{ query }} {{ model }}", {"query"})
    with pytest.raises(ValueError, match="no valid Jinja template"):
        Prompt("{{ query", {"query"})
    assert Prompt("{% if brief %}{{ query }}{% endif %}", {"query"}, {"brief"})(query="q", brief=True) == "q"


def test_a_template_runs_in_a_sandbox() -> None:
    with pytest.raises(Exception, match="unsafe"):
        Prompt("{{ query.__class__.__mro__ }}", {"query"})(query="q")


def test_values_are_never_run_as_templates() -> None:
    assert Prompt("{{ query }}", {"query"})(query="{{ 7 * 7 }}{% raw %}") == "{{ 7 * 7 }}{% raw %}"


@pytest.mark.parametrize(
    "text", ["</passage>", "< / PASSAGE >", '<passage label="9">', "<query>", "<|im_end|>", "</ sentence>"]
)
def test_a_text_cannot_end_its_own_quotation(text: str) -> None:
    assert "<" not in harmless(text)
    assert quoted("passage", text, label=1).count("<") == 2


def test_other_angle_brackets_stay() -> None:
    assert (
        harmless("a < b, <b>bold</b>, List<Passages>, <passages>") == "a < b, <b>bold</b>, List<Passages>, <passages>"
    )


def document(content: str | None, **meta: object) -> Document:
    return Document(content=content, meta=meta)


def test_metadata_stands_before_the_text_and_empty_fields_are_left_out() -> None:
    text = shown(
        document("Barley.", headings="Grain > Malt", year=2020, note=None), ["headings", "year", "note", "no"], 150
    )
    assert text == "headings: Grain > Malt; year: 2020\nBarley."


def test_a_document_without_text_is_shown_as_such() -> None:
    assert shown(document(None), ["headings"], 100) == "(no text)"
    assert shown(document(" \n"), [], 100) == "(no text)"
    assert shown(document(None, kind="image"), ["kind"], 100) == "kind: image"


def test_a_long_text_is_cut_at_the_end_of_a_sentence() -> None:
    assert shown(document("Oats ferment slowly. Barley malts well. Rye bread is dense."), [], 45) == (
        "Oats ferment slowly. Barley malts well.…"
    )


def test_a_long_text_is_cut_around_what_matched() -> None:
    text = "Oats ferment slowly. " * 50 + "Barley malts well. " + "Rye bread is dense. " * 50
    start = text.index("Barley")
    matched = [[1000 + start, 1000 + start + 18, 0.9], [1000, 1020, 0.2]]
    cut = shown(
        document(text, **{chunks.START: 1000, chunks.END: 1000 + len(text), chunks.MATCHED_SPANS: matched}), [], 60
    )
    assert "Barley malts well." in cut
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert len(cut) <= 60


@pytest.mark.parametrize("text", ["word " * 5000, "x" * 20000, "文" * 20000, "👩‍🚒" * 3000])
def test_a_text_without_sentences_keeps_to_the_budget(text: str) -> None:
    cut = shown(document(text, headings="h" * 500), ["headings"], 100)
    assert 30 < len(cut) <= 100
