"""What all commands share: where they print, and how they open an index."""

from pathlib import Path

from rich.console import Console

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

console = Console(highlight=False, markup=False)  # names and texts may hold brackets


def is_index(folder: Path) -> bool:
    """Tell whether a folder holds an index."""
    return (folder / "shard").is_dir()


def open_index(folder: Path) -> QdrantEdgeDocumentStore:
    """
    Open an index that exists; another folder should not become an empty index.

    :param folder: The folder of the index.
    :returns: Its store.
    :raises FileNotFoundError: If there is no index in it.
    """
    if not is_index(folder):
        raise FileNotFoundError(f"There is no index in {folder}. Make one with: adv-retrieval index PATH --to {folder}")
    return QdrantEdgeDocumentStore(str(folder))
