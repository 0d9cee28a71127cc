"""Leaves and queries as vectors of the default model."""

import numpy as np
import pytest
from haystack import Document

from haystack_adv_retrieval import LeafEmbedder, QueryEmbedder


def test_a_lone_surrogate_is_read_as_what_stands_for_it():
    broken, mended = "tea \ud800 for two", "tea \ufffd for two"
    expected = QueryEmbedder().run(text=mended)["embedding"]
    assert QueryEmbedder().run(text=broken)["embedding"] == expected
    leaf = Document(id="a", content=broken, meta={"headings": broken})
    (embedded,) = LeafEmbedder().run(documents=[leaf])["documents"]
    assert embedded.embedding == pytest.approx(expected, abs=1e-6)
    assert (embedded.content, embedded.meta) == (broken, {"headings": broken})


def test_chosen_metadata_is_read_in_front_of_the_text():
    leaf = Document(content="four minutes", meta={"headings": "Tea \ud800", "kind": None, "other": "rye"})
    (embedded,) = LeafEmbedder(meta_fields_to_embed=["headings", "kind"]).run(documents=[leaf])["documents"]
    expected = QueryEmbedder().run(text="Tea \ufffd\nfour minutes")["embedding"]
    assert np.dot(embedded.embedding, expected) == pytest.approx(1, abs=1e-5)
