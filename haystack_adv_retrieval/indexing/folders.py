"""Files and folders as sources of an index."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from haystack import Document

from haystack_adv_retrieval.components.file_reader import SUFFIXES, FileReader
from haystack_adv_retrieval.core import chunks

METADATA_FILE = "metadata.jsonl"


@dataclass
class Folders:
    """
    The files that were named on a command line, with the metadata that lies beside them.

    A file `metadata.jsonl` in a folder describes files of that folder, one a line:
    `{"file": "refunds.md", "meta": {"year": 2024}}`. Below one with a line that cannot be read, files without a line of
    their own are failures, as that line may be theirs: indexed without it they would lose what the index holds of it.

    :param files: The files to index, sorted.
    :param scope: Paths of the folders, each ending with "/": what lies below is listed completely.
    :param meta: Metadata by file.
    :param failures: The reason by path, for what could not be read.
    :param passed_over: How many files of the folders are of types that cannot be read, by suffix.
    """

    files: list[Path] = field(default_factory=list)
    scope: list[str] = field(default_factory=list)
    meta: dict[Path, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    passed_over: Counter[str] = field(default_factory=Counter)

    def documents(self, reader: FileReader) -> Iterator[Document]:
        """
        Read the files one after another; those that cannot be read are added to `failures`.

        :param reader: Reads them.
        :returns: The documents.
        """
        for file in self.files:
            result = reader.run(sources=[file], meta=self.meta.get(file, {}))
            self.failures |= {failed["source"]: failed["reason"] for failed in result["failed"]}
            yield from result["documents"]


def find_files(paths: Sequence[str], include: Sequence[str] = ("*",)) -> Folders:
    """
    Find the files to index.

    :param paths: Files, folders (searched at every depth, but not in hidden files and folders) and glob patterns.
    :param include: Patterns of which a file's name or its path below the folder has to match one.
    :returns: What was found. A path that does not exist, and a named file of a type that cannot be read, is a failure.
    :raises ValueError: If a path is empty, which would mean the current folder.
    """
    if "" in paths:
        raise ValueError(f"paths must not be empty, got {list(paths)!r}")
    found = Folders()
    files: set[Path] = set()
    below: set[Path] = set()
    for path in paths:
        matches = sorted(glob(path, recursive=True)) if has_magic(path) and not Path(path).exists() else [path]
        for match in map(Path, matches):
            if match.is_dir():
                folder = match.resolve()
                below.update(_below(folder, include))
                if list(include) == ["*"]:
                    found.scope.append(folder.as_posix().rstrip("/") + "/")
            elif match.is_file():
                files.add(match.resolve())
            else:
                found.failures[str(match)] = "there is no such file or folder"
        if not matches:
            found.failures[path] = "no file matches this pattern"
    files.update(file for file in below if file.suffix.lower() in SUFFIXES)
    found.files = sorted(files)
    found.passed_over.update(sorted(file.suffix.lower() for file in below - files))
    unclear = [folder for folder in sorted({file.parent for file in files}) if not _read_metadata(folder, found)]
    for file in found.files:
        if file not in found.meta and any(file.is_relative_to(folder) for folder in unclear):
            found.failures[file.as_posix()] = (
                f"a line of {METADATA_FILE} that was not understood may be about this file"
            )
    found.files = [file for file in found.files if file.as_posix() not in found.failures]
    return found


def _below(folder: Path, include: Sequence[str]) -> Iterator[Path]:
    for file in folder.rglob("*"):
        below = file.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in below.parts)
        if is_hidden or file.name == METADATA_FILE or not file.is_file():
            continue
        if any(fnmatch(file.name, pattern) or fnmatch(below.as_posix(), pattern) for pattern in include):
            yield file.resolve()


def _read_metadata(folder: Path, found: Folders) -> bool:
    """Read the metadata that lies beside the files of a folder; tell whether every line was understood."""
    path = folder / METADATA_FILE
    if not path.is_file():
        return True
    understood = True
    # Not `splitlines`, which also splits at characters that JSON allows within a string.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
            file, meta = (folder / row["file"]).resolve(), dict(row["meta"])
            if chunks.SOURCE_ID in meta:
                raise ValueError(f"meta must not hold {chunks.SOURCE_ID!r}, as the path is the identity of a file")
            exists = file.is_file()
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            found.failures[f"{path}:{number}"] = f"this line of metadata was not understood: {error!r}"
            understood = False
            continue
        found.meta[file] = meta
        if not exists:
            found.failures[f"{path}:{number}"] = (
                f"this line of metadata names a file that does not exist: {row['file']}"
            )
    return understood
