import copy
import itertools
import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from haystack import Document, component, logging

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.hierarchy import Hierarchy, Level
from haystack_adv_retrieval.core.outline import Outline
from haystack_adv_retrieval.core.rulers import CharacterRuler, Ruler, UnitRuler, token_starts, word_starts
from haystack_adv_retrieval.core.structure import Block, Structure, find_blocks
from haystack_adv_retrieval.models import load_tokenizer
from haystack_adv_retrieval.parameters import are_positive, check_choice

logger = logging.getLogger(__name__)

SplitBy = Literal["word", "token", "character"]
Leaf = Literal["chunk", "sentence"]

# Raised when the same settings would split a text differently than an earlier release did.
ALGORITHM = 1


@component
class HierarchicalSplitter:
    """
    Splits documents into a tree of chunks: small leaves to search, larger blocks to read.

    Every chunk is an exact span of its source, the children of a chunk tile it, and none is larger than its level's
    size. Blocks end where the text has a break, the strongest first: heading, paragraph, sentence, clause, word. A
    table or a code block is cut only if it is larger than the size by itself, and then between rows or lines. A section
    below a quarter of the size shares a block with its neighbour. The metadata of the chunks is described in
    `haystack_adv_retrieval.core.chunks`.

    The metadata of a document is copied to every chunk, but what has the name of a chunk's own key, such as `level`,
    `unit`, `namespace` or `headings`, cannot be: it is left out with a warning.

    A document without text, or with white space alone, has no chunks; its source record says so, which lets an index
    forget what the source held before.

    ### Usage example
    ```python
    from haystack import Document
    from haystack_adv_retrieval import HierarchicalSplitter

    text = "# Refunds\\nRefunds take 14 days. This starts when the parcel arrives.\\n# Shipping\\nShipping is free."
    splitter = HierarchicalSplitter(block_sizes=[12, 6])
    result = splitter.run(documents=[Document(content=text, meta={"source_id": "terms"})])
    print([parent.content for parent in result["parents"]])
    print([(leaf.content, leaf.meta["headings"]) for leaf in result["documents"]])
    ```
    """

    def __init__(
        self,
        block_sizes: Sequence[int] = (900, 150),
        split_by: SplitBy = "word",
        leaf: Leaf = "chunk",
        *,
        split_overlap: int = 0,
        structure: Structure = "auto",
        language: str = "en",
        tokenizer: str | None = None,
        source_id_meta_key: str | Sequence[str] = ("source_id", "file_path", "url"),
        volatile_meta_keys: Sequence[str] = (),
        namespace: str | None = None,
    ) -> None:
        """
        Create a HierarchicalSplitter.

        :param block_sizes: Largest size of the chunks of each level, coarse to fine, in units of `split_by`. The last
            one is that of the leaves.
        :param split_by: The unit of the sizes. `"word"`: runs of characters without white space, of which every 32
            count as one more word; each Chinese or Japanese character is a word. `"token"`: tokens of `tokenizer`, as
            they fall when the whole text is tokenised; a longer one counts once per 32 characters. `"character"`: code
            points, without the white space around a chunk. A single grapheme cluster (of up to 64 code points) is not
            cut, even where it is larger than the size.
        :param leaf: `"chunk"` fills leaves with sentences up to their size; `"sentence"` makes each sentence a leaf.
        :param split_overlap: How many sentences a leaf repeats of the one before it, within its parent and its size.
        :param structure: `"markdown"`, `"plain"` (paragraphs end at blank lines), or `"auto"`, which looks for Markdown
            headings, fences and tables in each text.
        :param language: ISO 639 code of the texts' language, for the ends of sentences.
        :param tokenizer: Name or folder of a Hugging Face model whose tokenizer counts tokens. None means that of the
            default embedding model.
        :param source_id_meta_key: Metadata key, or keys in order of preference, that holds a document's stable
            identity. Without any of them it is `Document.id`, which changes with the text.
        :param volatile_meta_keys: Metadata keys (such as the time of a download) whose change makes no new version.
        :param namespace: Keeps sources of the same name apart; it is put in front of `source_id` as `"namespace::"` and
            into `meta["namespace"]`.
        :raises ValueError: If a parameter is out of its range.
        """
        if not are_positive(block_sizes) or not block_sizes:
            raise ValueError(f"block_sizes (the sizes of the levels) must be positive integers, got {block_sizes!r}")
        sizes = list(block_sizes)
        if any(coarse <= fine for coarse, fine in itertools.pairwise(sizes)):
            raise ValueError(f"block_sizes must go from coarse to fine, got {block_sizes!r}")
        if not 0 <= split_overlap < sizes[-1]:
            raise ValueError(
                f"split_overlap must be at least 0 and below the last of block_sizes ({sizes[-1]}), got {split_overlap}"
            )
        check_choice("split_by", split_by, SplitBy)
        check_choice("leaf", leaf, Leaf)
        check_choice("structure", structure, Structure)
        if namespace is not None and (not namespace or "::" in namespace):
            raise ValueError(f"namespace must not be empty or contain '::', got {namespace!r}")
        self.block_sizes = sizes
        self.split_by = split_by
        self.leaf = leaf
        self.split_overlap = split_overlap
        self.structure = structure
        self.language = language
        self.tokenizer = tokenizer
        self.source_id_meta_key = [source_id_meta_key] if isinstance(source_id_meta_key, str) else [*source_id_meta_key]
        self.volatile_meta_keys = [*volatile_meta_keys]
        self.namespace = namespace

    def warm_up(self) -> None:
        """Load the tokenizer, if tokens are counted."""
        if self.split_by == "token":
            load_tokenizer(self.tokenizer)

    @component.output_types(documents=list[Document], parents=list[Document], sources=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """
        Split documents.

        :param documents: Documents with text, each a source of its own.
        :returns: `documents`: the leaves; `parents`: the chunks of every coarser level; `sources`: one record a source,
            without text, that names its version and how many chunks each level has.
        :raises ValueError: If two documents have the same identity.
        """
        result: dict[str, list[Document]] = {"documents": [], "parents": [], "sources": []}
        _warn_of_lost_keys(documents)
        seen: set[str] = set()
        for record, document in zip(self.source_records(documents), documents, strict=True):
            source_id = record.meta[chunks.SOURCE_ID]
            if source_id in seen:
                raise ValueError(
                    f"Two documents have the source_id {source_id!r}. Give each document an identity of its own under "
                    f"one of the metadata keys {self.source_id_meta_key} (source_id_meta_key)."
                )
            seen.add(source_id)
            *parents, leaves = self._split(document.content or "", record.meta)
            result["documents"] += leaves
            result["parents"] += [parent for level in parents for parent in level]
            counts = ",".join(str(len(level)) for level in (*parents, leaves))
            record.meta.update(
                {chunks.LEAF_END: len(leaves), chunks.LEAF_COUNT: len(leaves), chunks.LEVEL_COUNTS: counts}
            )
            result["sources"].append(record)
            if not leaves:
                logger.warning("Source {source_id} holds no text; it has no chunks.", source_id=source_id)
        return result

    def source_records(self, documents: list[Document]) -> list[Document]:
        """
        Identify documents without splitting them, to find out cheaply which of them changed.

        :param documents: Documents with text.
        :returns: One level-0 record a document, in the same order, as `run` returns it but without counts.
        """
        settings = self._settings()
        return [self._source_record(document, settings) for document in documents]

    def _settings(self) -> str:
        tokenizer = _fingerprint(self.tokenizer) if self.split_by == "token" else ""
        return chunks.digest(
            ALGORITHM,
            *self.block_sizes,
            self.split_by,
            self.leaf,
            self.split_overlap,
            self.structure,
            self.language,
            tokenizer,
        )

    def _source_record(self, document: Document, settings: str) -> Document:
        named = (document.meta.get(key) for key in self.source_id_meta_key)
        identity = next((name for name in named if name not in (None, "")), document.id)
        meta = copy.deepcopy(chunks.meta_of_source(document.meta)[0])
        lasting = {key: value for key, value in meta.items() if key not in self.volatile_meta_keys}
        version = chunks.digest(
            document.content or "", json.dumps(lasting, sort_keys=True, default=str, ensure_ascii=True), settings
        )
        source_id = f"{self.namespace}::{identity}" if self.namespace else str(identity)
        own = {
            chunks.UNIT: "source",
            chunks.SOURCE_ID: source_id,
            chunks.SOURCE_VERSION: version,
            chunks.LEVEL: 0,
            chunks.LEAF_LEVEL: len(self.block_sizes),
            chunks.LEAF_START: 0,
        }
        if self.namespace:
            own[chunks.NAMESPACE] = self.namespace
        return Document(id=chunks.source_record_id(source_id), content=None, meta=meta | own)

    def _split(self, text: str, source: dict[str, Any]) -> list[list[Document]]:
        """Make the chunks of one source, a list per level."""
        blocks = find_blocks(text, self.structure)
        hierarchy = Hierarchy(text, blocks, self._ruler(text, blocks), self.language)
        levels = hierarchy.levels(self.block_sizes, sentence_leaves=self.leaf == "sentence", overlap=self.split_overlap)
        outline = Outline(text, blocks)
        user = chunks.user_meta(source)
        nested = {key: value for key, value in user.items() if not isinstance(value, str | int | float | None)}
        first_leaves = _first_leaves(levels)
        shared = dict.fromkeys(_VARYING) | {key: source[key] for key in _SHARED if key in source}
        shared[chunks.LEAF_COUNT] = first_leaves[-1][-1]
        result: list[list[Document]] = []
        parents, parent_ids = levels[0].pieces, [""]
        for level, ((pieces, borders), firsts) in enumerate(zip(levels, first_leaves, strict=True), start=1):
            shared |= {chunks.UNIT: "leaf" if level == len(levels) else "block", chunks.LEVEL: level}
            ids = chunks.chunk_ids(source[chunks.SOURCE_ID], source[chunks.SOURCE_VERSION], level, range(len(pieces)))
            documents: list[Document] = []
            for family, (first, last) in enumerate(itertools.pairwise(borders)):
                common = user | shared
                if level > 1:
                    common[chunks.PARENT_ID] = parent_ids[family]
                    common[chunks.PARENT_START], common[chunks.PARENT_END] = parents[family]
                for split_id in range(first, last):
                    start, end = pieces[split_id]
                    meta = common | outline.at(start)
                    meta[chunks.SPLIT_ID], meta[chunks.START], meta[chunks.END] = split_id, start, end
                    meta[chunks.LEAF_START], meta[chunks.LEAF_END] = firsts[split_id], firsts[split_id + 1]
                    if nested:
                        meta |= copy.deepcopy(nested)
                    documents.append(Document(ids[split_id], text[start:end], None, meta))
            result.append(documents)
            parents, parent_ids = pieces, ids
        return result

    def _ruler(self, text: str, blocks: Sequence[Block]) -> Ruler:
        if self.split_by == "character":
            return CharacterRuler(text)
        if self.split_by == "word":
            return UnitRuler(word_starts(text), len(text))
        pieces = [block.span for block in blocks]
        return UnitRuler(token_starts(text, pieces, load_tokenizer(self.tokenizer)), len(text))


# What every chunk has in common with its source's record.
_SHARED = (chunks.NAMESPACE, chunks.SOURCE_ID, chunks.SOURCE_VERSION, chunks.LEAF_LEVEL)
# What differs from chunk to chunk. A copy of a dictionary that has these keys already need not grow when they are set.
_VARYING = (chunks.SPLIT_ID, chunks.START, chunks.END, chunks.LEAF_START, chunks.LEAF_END, chunks.PAGE, chunks.HEADINGS)


def _warn_of_lost_keys(documents: list[Document]) -> None:
    lost: set[str] = set()
    for document in documents:
        lost |= chunks.meta_of_source(document.meta)[1]
    if lost:
        logger.warning(
            "Metadata under these keys is not kept, as chunks have their own of these names: {keys}. Rename it.",
            keys=", ".join(sorted(lost)),
        )


@cache
def _fingerprint(tokenizer: str | None) -> str:
    return chunks.digest(load_tokenizer(tokenizer).to_str())


def _first_leaves(levels: list[Level]) -> list[Sequence[int]]:
    """Find for each chunk of each level the ordinal of its first leaf; behind the last one, the number of leaves."""
    firsts: list[Sequence[int]] = [range(len(levels[-1].pieces) + 1)]
    for _, borders in reversed(levels[1:]):
        firsts.append([firsts[-1][border] for border in borders])
    return firsts[::-1]
