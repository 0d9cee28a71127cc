import json

import pytest

from haystack_adv_retrieval.evaluation.drafting import draft_questions
from haystack_adv_retrieval.evaluation.questions import load_questions, save_questions

LEAVE = "handbook/leave.md"


def reply(*items):
    return json.dumps({"questions": list(items)})


def item(question, *quotes, answer="x"):
    return {"question": question, "quotes": list(quotes), "answer": answer}


GOOD = item("How much holiday does a colleague get?", "Everyone has 28 days of leave a year.", answer="28 days")


def test_drafted_questions_are_marked_and_their_quotes_located(chat_server, sources, tmp_path):
    chat_server.script("Here you are:\n```json\n" + reply(GOOD) + "\n```")
    drafts = draft_questions({LEAVE: sources[LEAVE]}, chat_server.generator(), number=1)
    save_questions(tmp_path / "q.jsonl", drafts.questions)
    [question] = load_questions(tmp_path / "q.jsonl", sources)
    [span] = question.spans[LEAVE]
    assert span.text(sources[LEAVE]) == "Everyone has 28 days of leave a year."
    assert (question.drafted, question.answer) == (True, "28 days")
    assert not drafts.rejected


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (
            item("How much holiday does a colleague get?", "Everybody has 28 days of leave a year."),
            "quote not verbatim",
        ),
        (item("How much holiday does the passage promise?", *GOOD["quotes"]), "leans on the passage"),
        (item("Has everyone 28 days of leave a year?", *GOOD["quotes"]), "trivial"),
        (item("How much holiday does a colleague get?", "28 days"), "trivial"),
        (item("How much holiday do colleagues get?", *GOOD["quotes"]), "duplicate"),
        ({"question": "How much holiday does a colleague get?", "quotes": []}, "incomplete"),
        ("How much?", "incomplete"),
    ],
)
def test_drafts_that_prove_nothing_are_rejected(chat_server, sources, draft, reason):
    chat_server.script(reply(GOOD, draft))
    drafts = draft_questions({LEAVE: sources[LEAVE]}, chat_server.generator(), number=5)
    assert len(drafts.questions) == 1
    assert drafts.rejected == {reason: 1}


def test_questions_that_exist_are_not_repeated(chat_server, sources):
    chat_server.script(reply(GOOD))
    known = draft_questions({LEAVE: sources[LEAVE]}, chat_server.generator(), number=1).questions
    drafts = draft_questions({LEAVE: sources[LEAVE]}, chat_server.generator(), number=1, known=known)
    assert (drafts.questions, drafts.rejected) == ([], {"duplicate": 1})


def test_a_reply_that_cannot_be_read_costs_only_its_passage(chat_server, sources):
    chat_server.script(lambda body: reply(GOOD) if "28 days" in str(body) else "I'd rather not.")
    drafts = draft_questions(sources, chat_server.generator(), number=9)
    assert len(drafts.questions) == 1
    assert drafts.rejected["unreadable reply"] == 2


def test_no_more_is_asked_than_needed_and_every_source_has_its_turn(chat_server, sources):
    texts = {source: text * 40 for source, text in sources.items()}
    chat_server.script(reply())
    draft_questions(texts, chat_server.generator(), number=1)
    asked = [next(source for source in sources if f"Document: {source}" in prompt) for prompt in chat_server.prompts]
    assert set(asked[:3]) == set(sources)
    assert "Section: Leave" in next(prompt for prompt in chat_server.prompts if LEAVE in prompt)

    chat_server.script(lambda body: reply(GOOD) if "28 days" in str(body) else reply())
    draft_questions({LEAVE: texts[LEAVE].replace("Everyone has", "All have", 39)}, chat_server.generator(), number=1)
    assert len(chat_server.requests) < 20


def test_numbers_have_to_be_positive(chat_server, sources):
    with pytest.raises(ValueError, match="positive, got 0 and 2"):
        draft_questions(sources, chat_server.generator(), number=0)
