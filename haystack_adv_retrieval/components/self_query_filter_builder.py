"""SelfQueryFilterBuilder: constraints said in words become a safe filter."""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, Literal

from haystack import component, default_from_dict, default_to_dict, logging
from haystack.components.generators.chat.types import ChatGenerator
from haystack.core.serialization import component_to_dict
from haystack.document_stores.types import DocumentStore
from haystack.utils import deserialize_callable, serialize_callable

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.core.filter_schema import FilterSchema, MetadataField
from haystack_adv_retrieval.core.self_query.filter_tree import emit, relaxations
from haystack_adv_retrieval.core.self_query.prompt import PROMPT, VARIABLES, prompt_values, read_reply, reply_schema
from haystack_adv_retrieval.core.self_query.understanding import Understanding, understand_by_rules, understand_reply
from haystack_adv_retrieval.core.self_query.words import Vocabulary
from haystack_adv_retrieval.llm.asking import ask, helper_model, prepare, release
from haystack_adv_retrieval.llm.prompts import Prompt
from haystack_adv_retrieval.parameters import check_at_least, check_choice, check_positive
from haystack_adv_retrieval.store_fields import read_fields
from haystack_adv_retrieval.stores import both

logger = logging.getLogger(__name__)

Method = Literal["auto", "llm", "rules"]


@component
class SelfQueryFilterBuilder:
    """
    Turns a question into a text to search for and a metadata filter.

    "What did our 2023 earnings reports say about margins?" is a search for "margins" among documents with `year` 2023
    and `type` "earnings report". A wrong filter hides the answer, so nothing reaches the store that is not in the
    schema: values are coerced to the type of their field, and what cannot be understood is dropped in the direction
    that lets more documents through. `base_filters`, such as a tenant's, hold whatever happens.

    Conditions in plain words (years, dates, ranges, listed values, numbers with units, negations, `year>=2020`) are
    read by rules without a model. With `method="auto"` a model is asked only about questions that say more than the
    rules can explain, and only its conditions on what they left are added. What a model makes of an English question
    counts only where the question names the value or something alike, so other words for a value belong into `values`.
    The rules read English, the model any language.

    The output uses what stores read alike: `==`, `!=`, `in`, `not in` for texts, truth values and integers, comparisons
    for numbers and ISO dates, AND and OR. Dates are compared by day, in the time zone in which they are stored. Lists
    cannot be asked in the same way everywhere: a field of type "list[str]" needs `operators=["in", "not in"]`, for
    stores in which these compare the elements. Decimals, and numbers past 32 bits, are compared with 32-bit precision.

    ### Usage example
    ```python
    from haystack_adv_retrieval import SelfQueryFilterBuilder

    builder = SelfQueryFilterBuilder(
        metadata_fields=[
            {"name": "type", "values": {"earnings report": ["earnings"], "memo": []}},
            {"name": "year", "type": "int", "unit": "year"},
        ],
        method="rules",
    )
    result = builder.run(query="What did our 2023 earnings reports say about margins?")
    assert result["query"] == "margins"
    assert result["filters"]["operator"] == "AND"
    ```
    """

    def __init__(
        self,
        metadata_fields: Sequence[MetadataField | Mapping[str, Any]] | None = None,
        chat_generator: ChatGenerator | None = None,
        *,
        document_store: DocumentStore | None = None,
        max_age: float | None = 60.0,
        method: Method = "auto",
        base_filters: dict[str, Any] | None = None,
        document_contents: str = "documents",
        examples: Sequence[Mapping[str, Any]] | None = None,
        prompt: str | None = None,
        threshold: float = 0.85,
        clock: Callable[[], date] | None = None,
        timeout: float | None = 30.0,
        cache_size: int = 256,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create the component.

        :param metadata_fields: The fields that filters may use: `MetadataField`s or their parameters as plain data.
            None means all that the documents of `document_store` have.
        :param chat_generator: The model for the methods "llm" and "auto". None means the default model, see
            `haystack_adv_retrieval.llm.asking.helper_model`; "auto" makes do with the rules where there is none.
        :param document_store: Where to read values and ranges of the fields from, on the first run and when they are
            older than `max_age`; `refresh` reads them anew at once.
        :param max_age: Seconds after which a run reads the fields from the store again, to learn of what was indexed
            since, by whomever. None reads them once.
        :param method: "rules", "llm", or "auto": the model is asked what the rules do not explain.
        :param base_filters: A filter that every result satisfies, whatever the question says.
        :param document_contents: What the collection holds, such as "recipes and dishes of the south". The model is
            told so, and the rules take the words before "of" for no topic.
        :param examples: Further examples for the model, such as `{"question": "memos on tax", "query": "tax", "filter":
            [{"field": "type", "operator": "==", "value": "memo"}]}`.
        :param prompt: A Jinja2 template instead of `core.self_query.prompt.PROMPT`, with the same
            variables, of which `query` must be used.
        :param threshold: Likeness in (0, 1] from which on a text counts as a misspelt value of a field.
        :param clock: Tells the day or time; called on every run. None means the machine's.
        :param timeout: Seconds to wait for the model; None waits as long as it takes.
        :param cache_size: How many of the model's replies are kept, by question, fields and day.
        :param raise_on_failure: Whether to raise if the model fails or a condition is dropped, instead of going on with
            less of a filter.
        :raises ValueError: If a parameter does not fit.
        """
        check_choice("method", method, Method)
        check_at_least(0, cache_size=cache_size)
        check_positive(timeout=timeout, max_age=max_age)
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold}")
        if metadata_fields is None and document_store is None:
            raise ValueError("metadata_fields or document_store is needed, got None for both")
        if base_filters and "operator" not in base_filters:
            raise ValueError(f"base_filters must be a Haystack filter, got {base_filters!r}")
        fields = FilterSchema(metadata_fields or [])
        self.metadata_fields = None if metadata_fields is None else fields.to_dicts()
        self.chat_generator = chat_generator
        self.document_store = document_store
        self.max_age = max_age
        self.method = method
        self.base_filters = base_filters
        self.document_contents = document_contents
        self.examples = [dict(example) for example in examples or ()]
        self.prompt = prompt
        self.threshold = threshold
        self.clock = clock
        self.timeout = timeout
        self.cache_size = cache_size
        self.raise_on_failure = raise_on_failure
        for example in self.examples:
            if not {"question", "query", "filter"} <= set(example):
                raise ValueError(f'examples need "question", "query" and "filter", got {example!r}')
        self._prompt = Prompt(prompt or PROMPT, {"query"}, VARIABLES)
        self._model = None if method == "rules" else helper_model(chat_generator)
        self._given = fields
        self._vocabulary = None if document_store else Vocabulary(fields, document_contents)
        self._read_next = math.inf  # a `time.monotonic()`
        self._replies: dict[tuple[str, date, Vocabulary], Understanding] = {}

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component."""
        return default_to_dict(
            self,
            metadata_fields=self.metadata_fields,
            chat_generator=self.chat_generator and component_to_dict(self.chat_generator, "chat_generator"),
            document_store=self.document_store,
            max_age=self.max_age,
            method=self.method,
            base_filters=self.base_filters,
            document_contents=self.document_contents,
            examples=self.examples,
            prompt=self.prompt,
            threshold=self.threshold,
            clock=self.clock and serialize_callable(self.clock),
            timeout=self.timeout,
            cache_size=self.cache_size,
            raise_on_failure=self.raise_on_failure,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SelfQueryFilterBuilder":
        """
        Restore the component.

        :param data: What `to_dict` returned.
        :returns: The component.
        """
        parameters = dict(data.get("init_parameters", {}))
        if parameters.get("clock"):
            parameters["clock"] = deserialize_callable(parameters["clock"])
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    def warm_up(self) -> None:
        """Warm up the model of the method "llm"; "auto" does so when it first asks it."""
        if self._model and self.method == "llm":
            drive(prepare(self._model))

    async def warm_up_async(self) -> None:
        """Warm up the model of the method "llm", asynchronously."""
        if self._model and self.method == "llm":
            await drive_async(prepare(self._model))

    def close(self) -> None:
        """Close the model's connections."""
        if self._model:
            drive(release(self._model))

    async def close_async(self) -> None:
        """Close the model's connections, asynchronously."""
        if self._model:
            await drive_async(release(self._model))

    def refresh(self) -> None:
        """
        Read the fields from the document store anew.

        :raises ValueError: If the store cannot tell them.
        """
        drive(self._read_store())

    async def refresh_async(self) -> None:
        """
        Read the fields from the document store anew, asynchronously.

        :raises ValueError: If the store cannot tell them.
        """
        await drive_async(self._read_store())

    @component.output_types(query=str, filters=dict[str, Any], relaxations=list[dict[str, Any]], report=dict[str, Any])
    def run(self, query: str, base_filters: dict[str, Any] | None = None) -> dict[str, Any]:
        """
        Turn a question into a search.

        :param query: The question.
        :param base_filters: A filter that the result satisfies in addition to that of the init parameter.
        :returns:
            - `query`: The text to search for: the question without its conditions, or the whole question if nothing
              else is left.
            - `filters`: A Haystack filter; empty if there is nothing to filter by.
            - `relaxations`: Ever looser filters, for `FilteredRetriever`: without the conditions on the least certain
              field, and so on to `base_filters` alone.
            - `report`: `method` ("rules", "llm", "rules+llm" or "none"), `search`, `understood` (the conditions with
              their certainty), `coerced`, `repaired`, `dropped` and `ignored` (each with a reason), `unexplained`
              (words that the rules do not explain), `failure` (of the model, or None).
        :raises ValueError: With `raise_on_failure`, if a condition was dropped.
        """
        return drive(self._build(query, base_filters))

    @component.output_types(query=str, filters=dict[str, Any], relaxations=list[dict[str, Any]], report=dict[str, Any])
    async def run_async(self, query: str, base_filters: dict[str, Any] | None = None) -> dict[str, Any]:
        """
        Turn a question into a search, asynchronously.

        :param query: As for `run`.
        :param base_filters: As for `run`.
        :returns: As for `run`.
        :raises ValueError: As for `run`.
        """
        return await drive_async(self._build(query, base_filters))

    def _build(self, query: str, base_filters: dict[str, Any] | None) -> Steps[dict[str, Any]]:
        understood = yield from self._understand(query)
        dropped = [note for note in understood.notes if note.kind == "dropped"]
        if dropped and self.raise_on_failure:
            raise ValueError("; ".join(f"{note.said}: {note.reason}" for note in dropped))
        if dropped or understood.failure:
            reasons = [note.reason for note in dropped] + ([understood.failure] if understood.failure else [])
            logger.warning("Part of a question did not become a filter: {reasons}", reasons="; ".join(reasons))

        def with_base(filters: dict[str, Any]) -> dict[str, Any]:
            return copy.deepcopy(both(self.base_filters, base_filters, filters) or {})

        return {
            "query": understood.search,
            "filters": with_base(emit(understood.tree)),
            "relaxations": [with_base(emit(tree)) for tree in relaxations(understood.tree)],
            "report": copy.deepcopy(understood.report()),
        }

    def _understand(self, query: str) -> Steps[Understanding]:
        try:
            vocabulary = yield from self._current()
        except Exception as error:
            if self.raise_on_failure:
                raise
            return Understanding("none", query, failure=f"the fields could not be read: {error}")
        today = (self.clock or date.today)()
        today = today.date() if isinstance(today, datetime) else today
        rules = None
        if self.method != "llm" or not query.strip():
            rules = understand_by_rules(query, vocabulary, today, self.threshold)
            if self.method == "rules" or not rules.unexplained:
                return rules
        key = (query, today, vocabulary)
        if (known := self._replies.get(key)) is not None:
            return known
        try:
            filters, search = yield from self._ask(query, vocabulary.schema, today)
        except Exception as error:
            if self.raise_on_failure:
                raise
            failure = f"the model could not be used: {error}"
            return replace(rules, failure=failure) if rules else Understanding("none", query, failure=failure)
        understood = understand_reply(query, filters, search, vocabulary.schema, today, self.threshold, rules)
        self._replies[key] = understood
        for oldest in list(self._replies)[: max(0, len(self._replies) - self.cache_size)]:
            self._replies.pop(oldest, None)
        return understood

    def _ask(self, query: str, schema: FilterSchema, today: date) -> Steps[tuple[Any, str]]:
        assert self._model
        yield from prepare(self._model)
        prompt = self._prompt(**prompt_values(query, schema, today, self.document_contents, self.examples))
        reply = yield from ask(self._model, prompt, read=read_reply, schema=reply_schema(schema), timeout=self.timeout)
        if reply.value is None:
            raise reply.error or ValueError("the model gave no reply")
        return reply.value

    def _current(self) -> Steps[Vocabulary]:
        """Get the fields, read anew if they are too old; if that fails, the old ones."""
        known = self._vocabulary
        if known and time.monotonic() < self._read_next:
            return known
        try:
            return (yield from self._read_store())
        except Exception as error:
            if not known or self.raise_on_failure:
                raise
            logger.warning("The fields could not be read anew: {error}", error=error)
            return known

    def _read_store(self) -> Steps[Vocabulary]:
        """Read the fields from the store; where the user described one, the store adds its values and range."""
        if self.document_store is None:
            raise ValueError("document_store is needed to read the fields from, got None")
        # Set first, so that of many runs at a time one reads, and the others go on with what is known.
        self._read_next = time.monotonic() + (math.inf if self.max_age is None else self.max_age)
        names = [field.name for field in self._given.fields] or None
        found = {field.name: field.to_dict() for field in (yield from read_fields(self.document_store, names=names))}
        given = [field.to_dict() for field in self._given.fields] or list(found.values())
        stored = (found.get(field["name"], {}) for field in given)
        fields = [
            {**(also if also.get("type") == field["type"] else {}), **field}
            for field, also in zip(given, stored, strict=True)
        ]
        known, schema = self._vocabulary, FilterSchema(fields)
        if known and known.schema.to_dicts() == schema.to_dicts():
            return known  # and the model's replies with it
        vocabulary = Vocabulary(schema, self.document_contents)
        self._vocabulary = vocabulary if found else None  # an empty store is looked at again
        return vocabulary
