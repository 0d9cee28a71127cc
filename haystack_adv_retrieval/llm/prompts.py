"""Prompts: templates whose variables are checked, and texts of others that cannot break out of their place in one."""

import re
from collections.abc import Collection, Iterable
from typing import Any

from haystack import Document
from jinja2 import StrictUndefined, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from haystack_adv_retrieval.context.results import focus_of
from haystack_adv_retrieval.core.excerpts import excerpt
from haystack_adv_retrieval.core.rulers import CharacterRuler
from haystack_adv_retrieval.core.spans import Span

_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
# What a quoted text must not hold: the start of a tag like ours, or of a chat template's control token.
_TAG = re.compile(r"<(?=\s*/?\s*(?:query|passage|sentence|text)\b|\|)", re.IGNORECASE)


class Prompt:
    """A Jinja template for a prompt. It is rendered once, so a value that holds template code stays as it is."""

    def __init__(self, template: str, required: Collection[str], optional: Collection[str] = ()) -> None:
        """
        Check a template.

        :param template: The template.
        :param required: Variables that it has to use.
        :param optional: Variables that it may use.
        :raises ValueError: If the template is broken, misses a variable or uses an unknown one.
        """
        try:
            used = meta.find_undeclared_variables(_ENVIRONMENT.parse(template))
        except TemplateSyntaxError as error:
            raise ValueError(f"prompt is no valid Jinja template: {error}") from error
        if missing := sorted(set(required) - used):
            raise ValueError(f"prompt must use the variables {sorted(required)}, but misses {missing}")
        if unknown := sorted(used - {*required, *optional}):
            raise ValueError(f"prompt may use the variables {sorted({*required, *optional})}, but not {unknown}")
        self._template = _ENVIRONMENT.from_string(template)

    def __call__(self, **values: Any) -> str:
        """Fill the template in."""
        return self._template.render(values)


def harmless(text: str) -> str:
    """Make what looks like one of our tags, or like a model's control token, part of the text."""
    return _TAG.sub("‹", text)


def quoted(tag: str, text: str, **attributes: str | int) -> str:
    """
    Set a text of somebody else's between tags.

    :param tag: Name of the tag.
    :param text: The text; it is made harmless.
    :param attributes: Attributes of the opening tag; their values are not checked.
    :returns: The text on lines of its own between the tags.
    """
    opening = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{opening}>\n{harmless(text)}\n</{tag}>"


def shown(document: Document, meta_fields: Iterable[str], max_length: int) -> str:
    """
    Write a document as a model is to see it.

    :param document: The document.
    :param meta_fields: Metadata to show in a line before the text, at most a third of the budget.
    :param max_length: The budget in characters.
    :returns: The metadata and whole sentences around what the retriever matched, or else from the start; "…" where the
        text goes on.
    """
    fields = ((name, document.meta.get(name)) for name in meta_fields)
    heading = "; ".join(f"{name}: {value}" for name, value in fields if value not in (None, ""))
    if len(heading) > max_length // 3:
        heading = heading[: max(0, max_length // 3 - 1)] + "…"
    text = document.content or ""
    budget = max_length - len(heading) - 3  # the line's end and two ellipses
    if len(text) > budget:
        whole, focus, ruler = Span(0, len(text)), focus_of(document), CharacterRuler(text)
        span = excerpt(text, Span(0, 0) if focus == whole else focus, max(1, budget), ruler)
        span = span if span.length else excerpt(text, whole, max(1, budget), ruler)
        text = "…" * (span.start > 0) + span.text(text).strip() + "…" * (span.end < len(text))
    return "\n".join(part for part in (heading, text) if part.strip()) or "(no text)"
