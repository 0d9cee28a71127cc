"""The metadata fields that filters may use: their names, types, values and operators."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

_EQUALITY = ("==", "!=", "in", "not in")
_ORDER = (">", ">=", "<", "<=")
# What each type can be asked in the same words in every store. Lists have no such operator: InMemoryDocumentStore
# compares the whole list, Qdrant any element.
OPERATORS_OF_TYPE: dict[str, tuple[str, ...]] = {
    "str": _EQUALITY,
    "int": _EQUALITY + _ORDER,
    "float": _EQUALITY + _ORDER,
    "date": _EQUALITY + _ORDER,
    "bool": _EQUALITY,
    "list[str]": (),
}
NEGATED = {"==": "!=", "!=": "==", "in": "not in", "not in": "in", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}
# How models and people write the operators; case, blanks and underscores do not matter.
OPERATOR_NAMES = {
    "==": ("=", "===", "eq", "equal", "equals", "equal to", "is", "on", "exactly", "$eq", "match"),
    "!=": ("<>", "=/=", "≠", "ne", "neq", "not equal", "not equals", "not equal to", "is not", "not", "$ne"),
    ">": ("gt", "greater", "greater than", "more than", "after", "later than", "over", "above", "$gt"),
    ">=": (
        "≥",
        "=>",
        "gte",
        "ge",
        "greater than or equal",
        "greater than or equal to",
        "at least",
        "since",
        "from",
        "$gte",
    ),
    "<": ("lt", "less", "less than", "before", "earlier than", "under", "below", "$lt"),
    "<=": ("≤", "=<", "lte", "le", "less than or equal", "less than or equal to", "at most", "until", "up to", "$lte"),
    "in": ("one of", "any of", "any", "$in"),
    "not in": ("nin", "none of", "not any of", "$nin"),
    "contains": ("contain", "includes", "has", "contains any", "like", "$contains"),
    "not contains": ("does not contain", "excludes", "not like"),
    "between": ("range", "in range", "within"),
}
_OPERATORS = {name: operator for operator, names in OPERATOR_NAMES.items() for name in (operator, *names)}
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "list": "list[str]"}
_TRUTH = {"true": True, "false": False}
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def operator_of(name: Any) -> str | None:
    """
    Resolve the name of a comparison operator.

    :param name: As a model or a person wrote it.
    :returns: A key of `OPERATOR_NAMES`, or None.
    """
    return _OPERATORS.get(" ".join(name.casefold().replace("_", " ").split())) if isinstance(name, str) else None


def fold(text: str) -> str:
    """Bring names and values to one form: no case, and blanks for everything that is neither letter nor digit."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


class MetadataField:
    """A metadata field that filters may use."""

    def __init__(
        self,
        name: str,
        type: str | type | Enum = "str",
        description: str = "",
        values: Mapping[Any, Sequence[str]] | Collection[Any] = (),
        operators: Collection[str] | None = None,
        aliases: Collection[str] = (),
        unit: str = "",
        minimum: Any = None,
        maximum: Any = None,
    ) -> None:
        """
        Describe a field.

        :param name: Its key in the metadata: letters, digits, `_` and `-`.
        :param type: "str", "int", "float", "bool", "date" (ISO 8601 text, all in one time zone, compared by day) or
            "list[str]".
        :param description: What it means, for the model.
        :param values: For "str" and "list[str]" all values that occur, perhaps with other names: `["de", "en"]` or
            `{"de": ["German"], "en": ["English"]}`. For "bool" names of its two values, such as `{"true": ["in
            stock"], "false": ["sold out"]}`; the field's own name means true. Values that differ in case and signs
            only, such as "Memo" and "memo", cannot be told apart in a question: they are asked for together.
        :param operators: The operators allowed, out of Haystack's; None means all that mean the same in every store.
            For "list[str]" that is none: `in` compares single elements in Qdrant and the whole list in
            `InMemoryDocumentStore`. Give `["in", "not in"]` if your store compares elements.
        :param aliases: Other names of the field.
        :param unit: Unit of a number, such as "minutes", "USD" or "pages"; "year" says that it is a calendar year.
        :param minimum: The least value that occurs, for the model.
        :param maximum: The greatest value that occurs, for the model.
        :raises ValueError: If one of them does not fit.
        """
        kind = type.value if isinstance(type, Enum) else getattr(type, "__name__", type)
        self.name = name
        self.type: str = _TYPES.get(str(kind), str(kind))
        self.description = description
        self.aliases = tuple(aliases)
        self.unit = unit
        self.minimum, self.maximum = minimum, maximum
        if not self.is_name(name):
            raise ValueError(f"name must be made of letters, digits, '_' and '-', got {name!r}")
        if self.type not in OPERATORS_OF_TYPE:
            raise ValueError(f"type of {name!r} must be one of {list(OPERATORS_OF_TYPE)}, got {type!r}")
        possible = OPERATORS_OF_TYPE[self.type] or ("in", "not in")
        self.operators = OPERATORS_OF_TYPE[self.type] if operators is None else tuple(operators)
        if not set(self.operators) <= set(possible):
            raise ValueError(f"operators of {name!r} must be among {list(possible)}, got {list(self.operators)}")
        self.values = self._plain_values(values)
        self.spellings = self._spellings()

    @staticmethod
    def is_name(name: Any) -> bool:
        """Tell whether a metadata key can be asked for in every store."""
        return isinstance(name, str) and bool(_NAME.fullmatch(name))

    def _plain_values(self, values: Mapping[Any, Sequence[str]] | Collection[Any]) -> dict[Any, tuple[str, ...]]:
        if isinstance(values, str) or (values and self.type not in ("str", "list[str]", "bool")):
            raise ValueError(
                f"values of {self.name!r} must be a list or dict, for a str, list[str] or bool, got {values!r}"
            )
        if not isinstance(values, Mapping):
            values = dict.fromkeys(sorted(values) if isinstance(values, set | frozenset) else values, ())
        plain = {value.value if isinstance(value, Enum) else value: tuple(names) for value, names in values.items()}
        if self.type != "bool":
            return {str(value): names for value, names in plain.items()}
        truth = {str(value).casefold(): names for value, names in plain.items()}
        if not set(truth) <= set(_TRUTH):
            raise ValueError(f"values of {self.name!r} must be named 'true' and 'false', got {list(plain)}")
        return {_TRUTH[value]: names for value, names in truth.items()}

    def _spellings(self) -> dict[str, tuple[Any, ...]]:
        """Map what is said, folded, to the values that it stands for: several if they are spelt alike."""
        spellings: dict[str, tuple[Any, ...]] = {}
        if self.type == "bool":
            spellings = {fold(name): (True,) for name in (self.name, *self.aliases)}
        else:
            for value in self.values:
                spellings[fold(value)] = (*spellings.get(fold(value), ()), value)
        for value, names in self.values.items():
            alike = (value,) if self.type == "bool" else spellings[fold(value)]
            for name in names:
                if spellings.setdefault(fold(name), alike) != alike:
                    raise ValueError(f"values of {self.name!r}: {name!r} stands for two of them")
        return spellings

    def to_dict(self) -> dict[str, Any]:
        """Write the field as plain data, without what is left at its default."""
        values: Any = {
            str(value).lower() if self.type == "bool" else value: list(names) for value, names in self.values.items()
        }
        plain = {
            "name": self.name,
            "type": self.type,
            "description": self.description,
            "values": values if any(values.values()) else list(values),
            "operators": None if self.operators == OPERATORS_OF_TYPE[self.type] else list(self.operators),
            "aliases": list(self.aliases),
            "unit": self.unit,
            "minimum": self.minimum,
            "maximum": self.maximum,
        }
        return {key: value for key, value in plain.items() if value not in ("", [], None)}


class FilterSchema:
    """
    The fields that filters may use, found by any of their names.

    :param fields: The fields, or their parameters as plain data.
    :raises ValueError: If a field does not fit, or two share a name.
    """

    def __init__(self, fields: Iterable[MetadataField | Mapping[str, Any]]) -> None:
        self.fields = [field if isinstance(field, MetadataField) else _from_dict(field) for field in fields]
        self._named: dict[str, MetadataField] = {}
        for field in self.fields:
            for name in (field.name, *field.aliases):
                if self._named.setdefault(fold(name), field) is not field:
                    raise ValueError(f"metadata_fields: {name!r} names two of them")

    def find(self, name: Any) -> MetadataField | None:
        """
        Find a field.

        :param name: Its name or an alias in any spelling, perhaps with `meta.` before it.
        :returns: The field, or None.
        """
        return self._named.get(fold(name.removeprefix("meta."))) if isinstance(name, str) else None

    def to_dicts(self) -> list[dict[str, Any]]:
        """Write the fields as plain data."""
        return [field.to_dict() for field in self.fields]


def _from_dict(data: Mapping[str, Any]) -> MetadataField:
    try:
        return MetadataField(**data)
    except TypeError as error:
        raise ValueError(f"metadata_fields: {error}, got {dict(data)!r}") from error
