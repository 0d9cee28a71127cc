"""The examples in docstrings run as they stand."""

import inspect
import os
import re
from pathlib import Path

import pytest

import haystack_adv_retrieval

EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
# They ask a chat server, which their own tests bring.
NEED_A_MODEL = {"LLMRanker"}


def examples() -> list[tuple[str, str]]:
    public = {name: getattr(haystack_adv_retrieval, name) for name in haystack_adv_retrieval.__all__}
    return [
        (name, inspect.cleandoc(code) if code.startswith(" ") else code)
        for name, value in public.items()
        for code in EXAMPLE.findall(inspect.getdoc(value) or "")
    ]


@pytest.mark.parametrize(("name", "code"), examples(), ids=lambda value: value if value.isidentifier() else "")
def test_the_example_runs(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if name in NEED_A_MODEL and not os.environ.get("OPENAI_API_KEY"):
        compile(code, name, "exec")
        return
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {})


def test_every_component_has_an_example():
    with_example = {name for name, _ in examples()}
    components = {
        name
        for name in haystack_adv_retrieval.__all__
        if inspect.isclass(value := getattr(haystack_adv_retrieval, name)) and hasattr(value, "run")
    }
    assert components - with_example == set()
