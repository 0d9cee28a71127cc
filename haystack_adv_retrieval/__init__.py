"""
Advanced retrieval for Haystack 3: search small units, read large ones, over one index.

The names below are in the order of a pipeline. They are imported when first used, so that importing the package loads
neither a model library nor a search engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "HierarchicalSplitter": "components.hierarchical_splitter",
    "ParentExpander": "components.parent_expander",
    "SentenceWindowExpander": "components.sentence_window_expander",
    "AutoMerger": "components.auto_merger",
}

if TYPE_CHECKING:
    from haystack_adv_retrieval.components.auto_merger import AutoMerger as AutoMerger
    from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter as HierarchicalSplitter
    from haystack_adv_retrieval.components.parent_expander import ParentExpander as ParentExpander
    from haystack_adv_retrieval.components.sentence_window_expander import (
        SentenceWindowExpander as SentenceWindowExpander,
    )

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
