import json

import pytest

from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation.questions import Question, grouped_by, load_questions, locate, save_questions

SOURCES = {
    "handbook/leave.md": "# Leave\n\nYou have 28 days\nof leave 🏖 a year. Ask early.\n\nAsk early for summer.",
    "handbook/pay.md": "# Pay\n\nPay day is the 25th.",
    "archive/pay.md": "# Pay\n\nPay day was the 1st.",
}


@pytest.fixture
def load(tmp_path):
    def load(*rows, sources=SOURCES):
        path = tmp_path / "q.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
        return load_questions(path, sources)

    return load


def test_gold_spans_are_merged_per_source(load):
    spans = [{"source": "leave.md", "start": start, "end": end} for start, end in [(20, 30), (3, 8), (25, 33)]]
    [question] = load({"question": "How long?", "spans": spans, "answer": "28 days", "group": "facts"})
    assert question.spans == {"handbook/leave.md": (Span(3, 8), Span(20, 33))}
    assert question.sources == {"handbook/leave.md"}
    assert (question.answer, question.group, question.drafted) == ("28 days", "facts", False)


def test_quotes_are_located_across_line_breaks_and_emoji(load):
    [question] = load({"question": "How long?", "source": "leave.md", "quotes": ["28 days of leave 🏖 a year."]})
    [span] = question.spans["handbook/leave.md"]
    assert span.text(SOURCES["handbook/leave.md"]) == "28 days\nof leave 🏖 a year."


def test_quotes_may_come_from_several_sources(load):
    quotes = ["28 days", {"source": "handbook/pay.md", "quote": "the 25th"}]
    [question] = load({"question": "?", "source": "leave.md", "quotes": quotes})
    assert question.sources == {"handbook/leave.md", "handbook/pay.md"}


@pytest.mark.parametrize("gold", [{"source": "leave.md"}, {"sources": ["leave.md"]}])
def test_a_source_alone_is_gold_as_a_whole(load, gold):
    [question] = load({"question": "?", **gold})
    assert (question.sources, question.spans) == ({"handbook/leave.md"}, {})


def test_spans_and_sources_need_no_texts(load):
    rows = [{"question": "a", "spans": [{"source": "x", "start": 0, "end": 9}]}, {"question": "b", "source": "y"}]
    assert [question.sources for question in load(*rows, sources=None)] == [{"x"}, {"y"}]


def test_blank_lines_a_byte_order_mark_and_line_separators_in_strings_are_read(load):
    questions = load("\ufeff" + json.dumps({"question": "a\u2028b", "source": "leave.md"}, ensure_ascii=False), "", " ")
    assert [question.text for question in questions] == ["a\u2028b"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "Invalid JSON"),
        ({"source": "leave.md"}, "question: Field required"),
        ({"question": " ", "source": "leave.md"}, "question: String should match"),
        ({"question": "?"}, "exactly one form"),
        (
            {"question": "?", "sources": ["leave.md"], "spans": [{"source": "leave.md", "start": 0, "end": 1}]},
            "one form",
        ),
        ({"question": "?", "source": "leave.md", "qoutes": ["x"]}, "qoutes: Extra inputs are not permitted"),
        ({"question": "?", "source": "leave.md", "quotes": [3]}, "quotes.0"),
        ({"question": "?", "quotes": ["28 days"]}, "the source '' is none of the 3 sources"),
        ({"question": "?", "source": "exit.md"}, "the source 'exit.md' is none of the 3 sources"),
        ({"question": "?", "source": "pay.md"}, "may be any of ['archive/pay.md', 'handbook/pay.md']"),
        ({"question": "?", "source": "leave.md", "quotes": ["have 29 days of"]}, "nearest is 'have 28 days\\nof'"),
        ({"question": "?", "source": "leave.md", "quotes": ["Ask early"]}, "occurs 2 times"),
        ({"question": "?", "source": "leave.md", "quotes": [" "]}, "not in the source"),
        ({"question": "?", "spans": [{"source": "leave.md", "start": 5, "end": 5}]}, "[5, 5) is empty"),
        (
            {"question": "?", "spans": [{"source": "leave.md", "start": 5, "end": 500}]},
            "not inside of 'handbook/leave.md'",
        ),
        ({"question": "?", "spans": [{"source": "leave.md", "start": -1, "end": 5}]}, "spans.0.start"),
    ],
)
def test_a_wrong_line_is_named_by_file_and_line(load, row, message):
    with pytest.raises(ValueError, match=r"q\.jsonl:2: ") as error:
        load({"question": "?", "source": "leave.md"}, row)
    assert message in str(error.value)


def test_all_wrong_lines_are_named_at_once(load):
    with pytest.raises(ValueError, match=r"(?s)q\.jsonl:1: .*q\.jsonl:3: "):
        load("{", {"question": "?", "source": "leave.md"}, "[]")


def test_quotes_without_texts_are_refused(load):
    with pytest.raises(ValueError, match="only in the sources' texts"):
        load({"question": "?", "source": "leave.md", "quotes": ["28 days"]}, sources=None)


def test_an_empty_file_is_refused(load):
    with pytest.raises(ValueError, match="no questions"):
        load("\n")


def test_a_quote_is_not_a_pattern():
    assert locate("(a.b)*", "aab (a.b)* aab") == Span(4, 10)


def test_saved_questions_are_loaded_unchanged(tmp_path):
    questions = [
        Question("a", frozenset({"handbook/leave.md"}), {"handbook/leave.md": (Span(0, 4),)}, "x", "g", {"n": 1}, True),
        Question("b – ü", frozenset({"handbook/pay.md"})),
    ]
    save_questions(tmp_path / "q.jsonl", questions)
    assert load_questions(tmp_path / "q.jsonl", SOURCES) == questions


def test_questions_are_grouped_by_their_metadata():
    questions = [Question("a", frozenset("x"), metadata={"year": 2024}), Question("b", frozenset("x"), group="old")]
    assert [question.group for question in grouped_by(questions, "year")] == ["2024", None]
