import asyncio
import copy
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from haystack import Document, component
from haystack.dataclasses import ByteStream

from haystack_adv_retrieval.core import chunks

FOLDER_VARIABLE = "ADV_RETRIEVAL_FILES"

# Haystack's converters and what they use log several lines about a broken file, some with its bytes.
_NOISY = [logging.getLogger(name) for name in ("haystack.components.converters", "pypdf", "trafilatura")]
_SILENCE = Lock()


@component
class FileReader:
    """
    Reads files into documents, each with its path as its stable identity.

    Markdown and plain text are read as they are, so headings, fences and line breaks stay where they were. Of PDF, DOCX
    and HTML (the extra `files`) the text is read, headings, lists and tables of the last two as Markdown.
    A file that cannot be read is reported, and the others are read.

    ### Usage example
    ```python
    from haystack.dataclasses import ByteStream
    from haystack_adv_retrieval import FileReader

    file = ByteStream.from_string("# Refunds\\nRefunds take 14 days.", meta={"file_path": "refunds.md"})
    print(FileReader().run(sources=[file])["documents"][0].meta["source_id"])
    ```
    """

    def __init__(self, encoding: str = "utf-8-sig", folder: str | None = None) -> None:
        """
        Create a FileReader.

        :param encoding: Encoding of text files. The default is UTF-8, with or without a byte order mark.
        :param folder: Where paths have to lie, so that callers of a server cannot have any file read; "" is nowhere,
            and leaves streams. None means the environment variable `ADV_RETRIEVAL_FILES`, else anywhere.
        """
        self.encoding = encoding
        self.folder = folder

    @component.output_types(documents=list[Document], failed=list[dict[str, str]])
    def run(
        self,
        sources: list[str | Path | ByteStream],
        meta: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """
        Read files.

        :param sources: Paths, or streams whose metadata holds a `file_path` or `file_name`, which tells the type, or a
            `source_id`, which is the identity and tells the type if neither is there.
        :param meta: Metadata for all documents, or a dictionary per source.
        :returns: `documents`: one per file that could be read, with `meta["source_id"]` (an absolute path, or what the
            stream says) and `meta["file_path"]`; `failed`: `{"source": ..., "reason": ...}` of the others.
        :raises ValueError: If `meta` is a list of another length than `sources`.
        """
        metas = meta if isinstance(meta, list) else [meta or {}] * len(sources)
        if len(metas) != len(sources):
            raise ValueError(f"meta must hold a dictionary per source ({len(sources)}), got {len(metas)}")
        documents: list[Document] = []
        failed: list[dict[str, str]] = []
        for source, extra in zip(sources, metas, strict=True):
            name, path = _first(source, _IDENTITY), _first(source, _PATH)
            try:
                content = self._read(source, Path(path).suffix.lower())
                own = source.meta if isinstance(source, ByteStream) else {}
                known = copy.deepcopy({chunks.SOURCE_ID: name, "file_path": path} | own | extra)
            except Exception as error:
                failed.append({"source": name, "reason": str(error) or type(error).__name__})
                continue
            documents.append(Document(content=content, meta=known))
        return {"documents": documents, "failed": failed}

    @component.output_types(documents=list[Document], failed=list[dict[str, str]])
    async def run_async(
        self,
        sources: list[str | Path | ByteStream],
        meta: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """
        Read files in a thread, so that the event loop goes on.

        :param sources: As in `run`.
        :param meta: As in `run`.
        :returns: As `run`.
        :raises ValueError: As `run`.
        """
        return await asyncio.to_thread(self.run, sources, meta)

    def _read(self, source: str | Path | ByteStream, suffix: str) -> str:
        if suffix not in SUFFIXES:
            raise ValueError(f"files of type {suffix or 'unknown'!r} are not supported, only {', '.join(SUFFIXES)}")
        stream = source if isinstance(source, ByteStream) else ByteStream(data=self._allowed(source).read_bytes())
        convert = SUFFIXES[suffix]
        if convert is None:
            try:
                return stream.data.decode(self.encoding)
            except UnicodeDecodeError as error:
                raise ValueError(f"the file is not text in the encoding {self.encoding!r}") from error
        with _silence():
            content = convert(stream) if stream.data else None
        if content is None:
            raise ValueError(f"no text could be read from this {suffix} file")
        return content

    def _allowed(self, source: str | Path) -> Path:
        path, folder = Path(source).resolve(), os.environ.get(FOLDER_VARIABLE) if self.folder is None else self.folder
        if folder is not None and not (folder and path.is_relative_to(Path(folder).resolve())):
            raise ValueError("files from here may not be read")
        return path


@contextmanager
def _silence() -> Iterator[None]:
    """Say nothing about a file but why it failed. One at a time, so that every level is put back as it was."""
    with _SILENCE:
        levels = [logger.level for logger in _NOISY]
        for logger in _NOISY:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(_NOISY, levels, strict=True):
                logger.setLevel(level)


# What a stream's metadata calls it, and says of the file that it was, by falling preference.
_IDENTITY = (chunks.SOURCE_ID, "file_path", "file_name")
_PATH = ("file_path", "file_name", chunks.SOURCE_ID)


def _first(source: str | Path | ByteStream, keys: Sequence[str]) -> str:
    """Read what a source is called under the first of some keys that its metadata has."""
    if not isinstance(source, ByteStream):
        return Path(source).resolve().as_posix()
    return next((str(source.meta[key]) for key in keys if source.meta.get(key) not in (None, "")), "unnamed")


@cache
def _pdf_converter() -> Any:
    from haystack.components.converters import PyPDFToDocument  # noqa: PLC0415 (optional)

    return PyPDFToDocument()


@cache
def _html_converter() -> Any:
    from haystack.components.converters import HTMLToDocument  # noqa: PLC0415 (optional)

    return HTMLToDocument(extraction_kwargs={"output_format": "markdown", "include_tables": True})


def _converted(converter: Any, stream: ByteStream) -> str | None:
    documents = converter.run(sources=[stream])["documents"]
    return documents[0].content or "" if documents else None


def _pdf(stream: ByteStream) -> str | None:
    return _converted(_pdf_converter(), stream)


def _html(stream: ByteStream) -> str | None:
    return _converted(_html_converter(), stream)


def _docx(stream: ByteStream) -> str | None:
    from haystack_adv_retrieval.docx_markdown import docx_to_markdown  # noqa: PLC0415 (optional)

    try:
        return docx_to_markdown(stream.data)
    except Exception:  # of many kinds, as many as there are ways to break such a file
        return None


# How the text of a file is read, by suffix; None is text that stays as it is.
SUFFIXES: dict[str, Callable[[ByteStream], str | None] | None] = {
    ".md": None,
    ".markdown": None,
    ".txt": None,
    ".text": None,
    ".rst": None,
    ".pdf": _pdf,
    ".docx": _docx,
    ".html": _html,
    ".htm": _html,
}
