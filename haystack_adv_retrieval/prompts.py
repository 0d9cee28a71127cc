"""Prompts: templates whose variables are checked, and texts of others that cannot break out of their place in one."""

import re
from collections.abc import Collection
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

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


def quoted(tag: str, text: str, **attributes: str | int) -> str:
    """
    Set a text of somebody else's between tags.

    :param tag: Name of the tag.
    :param text: The text; the starts of tags in it are made harmless.
    :param attributes: Attributes of the opening tag; their values are not checked.
    :returns: The text on lines of its own between the tags.
    """
    opening = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{opening}>\n{_TAG.sub('‹', text)}\n</{tag}>"
