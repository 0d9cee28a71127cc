"""
Compares the speed of splitting into a hierarchy with Haystack's and LlamaIndex's splitters.

Usage: python benchmarks/splitting.py FOLDER

FOLDER holds texts (`*.md`, `*.txt`). Each splitter gets them as they are and ten times as long. Speed is told per
second of processor time, so it does not depend on what else the machine does; nothing uses more than one thread.
"""

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import nltk
from haystack import Document
from haystack.components.preprocessors import HierarchicalDocumentSplitter

from haystack_adv_retrieval import HierarchicalSplitter
from haystack_adv_retrieval.models import load_tokenizer

Split = Callable[[list[str]], int]


def ours(block_sizes: list[int], split_by: str = "word", leaf: str = "chunk") -> Split:
    splitter = HierarchicalSplitter(block_sizes, split_by, leaf)
    splitter.warm_up()

    def split(texts: list[str]) -> int:
        documents = [Document(content=text, meta={"source_id": str(number)}) for number, text in enumerate(texts)]
        return len(splitter.run(documents=documents)["documents"])

    return split


def haystack(block_sizes: set[int], split_by: str) -> Split:
    splitter = HierarchicalDocumentSplitter(block_sizes=block_sizes, split_overlap=0, split_by=split_by)

    def split(texts: list[str]) -> int:
        documents = splitter.run([Document(content=text) for text in texts])["documents"]
        return sum(not document.meta["__children_ids"] for document in documents)

    return split


def llama_index(chunk_sizes: list[int]) -> Split:
    from llama_index.core import Document as Text
    from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes

    def tokens(text: str) -> list[int]:
        return load_tokenizer().encode(text, add_special_tokens=False).ids

    names = [str(size) for size in chunk_sizes]
    splitters = [SentenceSplitter(chunk_size=size, chunk_overlap=0, tokenizer=tokens) for size in chunk_sizes]
    parser = HierarchicalNodeParser.from_defaults(
        node_parser_ids=names, node_parser_map=dict(zip(names, splitters, strict=True))
    )
    return lambda texts: len(get_leaf_nodes(parser.get_nodes_from_documents([Text(text=text) for text in texts])))


def seconds(split: Split, texts: list[str], repeat: int) -> tuple[float, int]:
    best, leaves = float("inf"), 0
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        leaves = split(texts)
        best = min(best, time.process_time() - start)
    return best, leaves


def main(folder: str) -> None:
    paths = sorted(path for path in Path(folder).rglob("*") if path.suffix in {".md", ".txt"})
    texts = [path.read_bytes().decode() for path in paths]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    splitters = {
        "words 512/128/32: this package": ours([512, 128, 32]),
        "words 512/128/32: Haystack": haystack({512, 128, 32}, "word"),
        "words 250/75, sentences as leaves: this package": ours([250, 75, 60], leaf="sentence"),
        "sentences 10/3/1: Haystack": haystack({10, 3, 1}, "sentence"),
        "tokens 2048/512/128: this package": ours([2048, 512, 128], "token"),
        "tokens 2048/512/128: LlamaIndex": llama_index([2048, 512, 128]),
    }
    print(f"{len(texts)} texts, {megabytes:.2f} MB; MB per second of processor time\n")
    print(f"{'':<52}{'leaves':>8}{'MB/s':>8}{'MB/s at 10 x':>14}")
    for name, split in splitters.items():
        once, leaves = seconds(split, texts, repeat=3)
        longer, _ = seconds(split, [text * 10 for text in texts], repeat=1)
        print(f"{name:<52}{leaves:>8}{megabytes / once:>8.2f}{10 * megabytes / longer:>14.2f}", flush=True)


if __name__ == "__main__":
    # Both peers read NLTK's data, which LlamaIndex ships; NLTK refuses files with hard links, so it is given a copy.
    with tempfile.TemporaryDirectory() as data:
        shutil.copytree(
            Path(find_spec("llama_index.core").origin).parent / "_static" / "nltk_cache", data, dirs_exist_ok=True
        )
        os.environ["NLTK_DATA"] = data
        nltk.data.path.insert(0, data)
        main(sys.argv[1])
