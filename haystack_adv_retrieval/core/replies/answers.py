"""Reading what a chat model replied: the answer without the thoughts before it, and JSON out of anything."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import json_repair

_THOUGHTS = "think|thinking|thoughts?|reasoning|reflection|scratchpad"
_TAG = re.compile(rf"<\s*(/?)\s*(?:{_THOUGHTS})\s*>|\[(/?)THINK\]|◁(/?)think▷", re.IGNORECASE)
_FINAL = re.compile(r"<\|channel\|>\s*final\s*<\|message\|>")  # gpt-oss marks its answer, not its thoughts
# A number at the end of a reply that was cut off may have lost digits: "[3, 1, 1" can be the start of "[3, 1, 12]".
_CUT_NUMBER = re.compile(r"(?<=[\s,:\[])-?\d[\d.]*$")


def answer_of(text: str) -> str:
    """
    Cut away what a model thought before it answered.

    :param text: The reply. Thoughts stand in tags such as `<think>`; a block that never closes has no answer after it.
    :returns: The answer, stripped; empty if there is none.
    """
    text = _FINAL.split(text)[-1]
    kept, position, thinking = [], 0, False
    for tag in _TAG.finditer(text):
        if not thinking:
            kept.append(text[position : tag.start()])
        closing = any(tag.groups())
        if closing and not thinking:  # nested, or opened by the chat template
            kept.clear()
        thinking, position = not closing, tag.end()
    if not thinking:
        kept.append(text[position:])
    return "".join(kept).strip("\ufeff\u200b \t\r\n")


class JsonValue(NamedTuple):
    """
    A JSON object or list found in a text.

    :param value: The parsed value.
    :param start: Where it starts in the text.
    :param end: Where it ends.
    :param repaired: Whether it had to be mended to be read.
    """

    value: Any
    start: int
    end: int
    repaired: bool


def json_values(text: str) -> Iterator[JsonValue]:
    """
    Find the outermost JSON objects and lists of a text, whatever stands around them.

    Trailing commas, single quotes, comments, bare keys and missing brackets are mended.

    :param text: Any text.
    :returns: The values in their order; text in brackets that is no JSON may come as a list of words.
    """
    decoder, position = json.JSONDecoder(), 0
    while bracket := re.compile(r"[{\[]").search(text, position):
        start = bracket.start()
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = _closing(text, start)
            region = text[start:position]
            try:
                value = json_repair.loads(region if region.endswith(("}", "]")) else _CUT_NUMBER.sub("", region))
            except (ValueError, RecursionError):
                continue
            yield JsonValue(value, start, position, repaired=True)
        else:
            yield JsonValue(value, start, position, repaired=False)


def read_json(text: str) -> tuple[dict[str, Any], bool]:
    """
    Read the JSON object that a model was asked for.

    :param text: The reply. Thoughts, prose and code fences around the object are left out; of several, the last counts.
    :returns: The object, and whether it had to be mended.
    :raises ValueError: If there is no object.
    """
    found = [value for value in json_values(answer_of(text)) if isinstance(value.value, dict)]
    objects = [value for value in found if value.value or not value.repaired]  # "{...}" in prose is mended to {}
    if not objects:
        raise ValueError("the reply holds no JSON object")
    return objects[-1].value, objects[-1].repaired


def _closing(text: str, start: int) -> int:
    """Find the end of what opens at `start`; quotes do not count, since prose has apostrophes."""
    depth = 0
    for bracket in re.compile(r"[{}\[\]]").finditer(text, start):
        depth += 1 if bracket.group() in "{[" else -1
        if depth == 0:
            return bracket.end()
    return len(text)
