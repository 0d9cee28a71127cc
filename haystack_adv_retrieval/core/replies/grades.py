"""Reading a judgement of one passage: a grade, or yes or no, sharpened by the model's own probabilities."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from haystack_adv_retrieval.core.replies.answers import answer_of, json_values

# What each reply means, from 0 (irrelevant) to 1 (answers the query).
_DIGITS = {"0": 0.0, "1": 1 / 3, "2": 2 / 3, "3": 1.0}
_WORDS = {"no": 0.0, "yes": 1.0, "false": 0.0, "true": 1.0, "irrelevant": 0.0, "not relevant": 0.0, "relevant": 1.0}
_MEANING = _DIGITS | _WORDS

_NOUN = r"(?:relevance\s+)?(?:grade|score|rating|relevance|answer|judge?ment|verdict)"
_VALUE = rf"({'|'.join(sorted(_MEANING, key=len, reverse=True))})(?:\s*(?:/|out of)\s*3)?(?![\w/]|[.,]\d|\s*[-–]\s*\d)"
_AT_START = re.compile(rf"(?:the\s+)?(?:{_NOUN}\s*(?:is|:|=)?\s*)?{_VALUE}(?=\s*(?:[^\w\s]|\n|$))", re.IGNORECASE)
_NAMED = re.compile(rf"\b{_NOUN}\s*(?:is|:|=)\s*{_VALUE}", re.IGNORECASE)


def read_grade(text: str) -> tuple[float, bool]:
    """
    Read a grade from 0 to 3, or yes or no.

    :param text: The reply: the value alone, before an explanation, behind a word such as "Grade:", or in JSON.
    :returns: The relevance from 0 to 1, and False, since nothing is mended.
    :raises ValueError: If there is none, or more than one.
    """
    answer = answer_of(text)
    objects = [found.value for found in json_values(answer) if isinstance(found.value, dict)]
    stated = [value for part in objects for key, value in part.items() if re.fullmatch(_NOUN, key, re.IGNORECASE)]
    answer = re.sub(r"[*`\"']", "", str(stated[-1]) if stated else answer)
    answer = re.sub(r"[^\S\n]+", " ", answer).strip("[]() \n")
    match = _AT_START.match(answer)
    named = {match[1].lower()} if match else {value.lower() for value in _NAMED.findall(answer)}
    if len(named) != 1:
        raise ValueError("it states no single grade from 0 to 3" if not named else "it states several grades")
    return _MEANING[named.pop()], False


def expected_grade(relevance: float, answer: str, logprobs: Sequence[Mapping[str, Any]]) -> float:
    """
    Weigh a judgement with the probabilities of the alternatives, so that equal grades are told apart.

    :param relevance: What `read_grade` read.
    :param answer: The reply without the model's thoughts.
    :param logprobs: The tokens of the whole reply with their alternatives, in OpenAI's form.
    :returns: The expected relevance, from 0 to 1; `relevance` itself where the tokens do not tell.
    """
    tokens = [str(token.get("token", "")) for token in logprobs]
    position = -max(0, "".join(tokens).rfind(answer))
    for token, alternatives in zip(tokens, logprobs, strict=True):
        position += len(token)
        word = _plain(token)
        if position <= 0 or _MEANING.get(word) != relevance:
            continue
        meanings = _DIGITS if word in _DIGITS else _WORDS
        weights = [
            (meanings[other], math.exp(min(0.0, float(alternative["logprob"]))))
            for alternative in alternatives.get("top_logprobs") or []
            if (other := _plain(str(alternative.get("token", "")))) in meanings
        ]
        total = sum(weight for _, weight in weights)
        return sum(meaning * weight for meaning, weight in weights) / total if total else relevance
    return relevance


def _plain(token: str) -> str:
    return token.strip(" \t\r\n\"'*`:.").lower()
