from enum import Enum

import pytest
import yaml

from haystack_adv_retrieval.core.filter_schema import OPERATOR_NAMES, FilterSchema, MetadataField, operator_of


class Language(Enum):
    GERMAN = "de"
    ENGLISH = "en"


class Kind(Enum):
    TEXT = "str"


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"name": "a.b"}, "a.b"),
        ({"name": "with space"}, "with space"),
        ({"name": ""}, "''"),
        ({"name": "a", "type": "text"}, "text"),
        ({"name": "a", "type": "int", "values": [1, 2]}, "values"),
        ({"name": "a", "values": "abc"}, "abc"),
        ({"name": "a", "type": "bool", "values": {"maybe": ["so"]}}, "maybe"),
        ({"name": "a", "operators": [">"]}, ">"),
        ({"name": "a", "type": "list[str]", "operators": ["=="]}, "=="),
        ({"name": "a", "values": {"de": ["German"], "en": ["german"]}}, "german"),
        ({"name": "a", "colour": "red"}, "colour"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(parameters, named):
    with pytest.raises(ValueError, match=r"name|type|values|operators|metadata_fields") as error:
        FilterSchema([parameters])
    assert named in str(error.value)


def test_two_fields_cannot_share_a_name():
    with pytest.raises(ValueError, match="Year"):
        FilterSchema([{"name": "year", "type": "int"}, {"name": "published", "aliases": ["Year"]}])


def test_a_field_is_found_by_any_spelling_of_its_names():
    schema = FilterSchema([MetadataField("in_stock", "bool", aliases=["available now"])])
    for name in ("in_stock", "In Stock", "meta.in-stock", "AVAILABLE_NOW"):
        assert schema.find(name) is schema.fields[0]
    for name in ("stock", "meta.meta.in_stock", None, 3, ["in_stock"], {}):
        assert schema.find(name) is None


def test_types_and_values_may_be_enumerations_sets_or_python_types():
    field = MetadataField("language", Kind.TEXT, values={Language.GERMAN, Language.ENGLISH}.__class__(["en", "de"]))
    assert field.to_dict() == {"name": "language", "type": "str", "values": ["de", "en"]}
    assert MetadataField("language", str, values={Language.GERMAN: ["German"]}).values == {"de": ("German",)}
    assert [MetadataField("a", kind).type for kind in (int, float, bool, list, "string")] == [
        "int",
        "float",
        "bool",
        "list[str]",
        "str",
    ]


def test_a_field_survives_yaml():
    fields = [
        MetadataField("language", values={"de": ["German"], "en": []}, description="of the text", aliases=["tongue"]),
        MetadataField("in_stock", "bool", values={True: ["available"], "false": ["sold out"]}),
        MetadataField("pages", "int", unit="pages", minimum=1, maximum=900, operators=["<"]),
        MetadataField("tags", "list[str]", operators=["in"]),
    ]
    plain = FilterSchema(fields).to_dicts()
    again = FilterSchema(yaml.safe_load(yaml.safe_dump(plain)))
    assert again.to_dicts() == plain
    assert again.fields[1].values == {True: ("available",), False: ("sold out",)}
    assert plain[0] == {
        "name": "language",
        "type": "str",
        "description": "of the text",
        "values": {"de": ["German"], "en": []},
        "aliases": ["tongue"],
    }


def test_lists_have_no_operator_unless_the_store_is_known_to_compare_elements():
    assert MetadataField("tags", "list[str]").operators == ()
    assert MetadataField("tags", "list[str]", operators=["in"]).operators == ("in",)


def test_operators_are_known_under_many_names_and_each_name_means_one():
    spelled = {"gte": ">=", "GTE": ">=", "≥": ">=", "at least": ">=", "eq": "==", "=": "==", "<>": "!=", "$ne": "!="}
    spelled |= {"NOT_IN": "not in", "nin": "not in", " Not  In ": "not in", "before": "<", "between": "between"}
    assert {name: operator_of(name) for name in spelled} == spelled
    assert operator_of("roughly") is operator_of(None) is operator_of([]) is None
    names = [name for operator, names in OPERATOR_NAMES.items() for name in (operator, *names)]
    assert len(names) == len(set(names))
