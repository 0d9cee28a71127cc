from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.replies.answers import answer_of, json_values, read_json


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("  plain \n", "plain"),
        ("<think>a</think>b", "b"),
        ("<THINKING>\na\n</thinking>\n\nb", "b"),
        ("opened by the template</think>b", "b"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("a <think>b</think>", "a"),
        ("<think>never closed", ""),
        ("[THINK]a[/THINK]b", "b"),
        ("◁think▷a◁/think▷b", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b"),
        ("I think < 3 > 2", "I think < 3 > 2"),
    ],
)
def test_thoughts_are_cut_away(text: str, answer: str) -> None:
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    ("text", "value", "repaired"),
    [
        ('{"a": 1}', {"a": 1}, False),
        ('Sure!\n```json\n{"a": [1, 2]}\n```\nBye {you}', {"a": [1, 2]}, False),
        ("{'a': 'x', b: [1, 2,],}", {"a": "x", "b": [1, 2]}, True),
        ('{"a": "x ] y"} and [2]', {"a": "x ] y"}, False),
        ('{"a": 1} no: {"a": 2}', {"a": 2}, False),
        ('{"a": {"b": [1, 2', {"a": {"b": [1]}}, True),  # 2 may be the start of 20
        ('{"a": {"b": [1, 2,', {"a": {"b": [1, 2]}}, True),
        ("{}", {}, False),
        ("<think>{'a': 1}</think>{\"b\": 2}", {"b": 2}, False),
    ],
)
def test_an_object_is_read_out_of_anything(text: str, value: dict[str, Any], repaired: bool) -> None:
    assert read_json(text) == (value, repaired)


@pytest.mark.parametrize(
    "text", ["", "no object", "[1, 2]", "I {mean} it", "<think>{'a': 1}", "[" * 3000, '{"a":' * 3000]
)
def test_what_holds_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        read_json(text)


def test_values_know_where_they_stand() -> None:
    text = 'a [1] b {"c": "}"} d'
    assert [text[value.start : value.end] for value in json_values(text)] == ["[1]", '{"c": "}"}']


@given(st.text(alphabet="[]{}\",':1a\n<>/think ", max_size=60))
def test_no_text_makes_reading_fail_in_another_way(text: str) -> None:
    try:
        value, _ = read_json(text)
    except ValueError:
        return
    assert isinstance(value, dict)
