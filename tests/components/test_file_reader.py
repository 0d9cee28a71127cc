"""What is read of files and uploads, and from where."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from haystack.dataclasses import ByteStream
from trees import through_yaml

from haystack_adv_retrieval import FileReader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.md").write_text("# A\r\n\r\ntext\f", encoding="utf-8-sig", newline="")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9")
    (tmp_path / "open" / "link.txt").symlink_to(tmp_path / "b.txt")
    return tmp_path


def reasons(result: dict) -> list[str]:
    return [failure["reason"] for failure in result["failed"]]


def test_text_stays_as_it_is_under_its_path_and_what_cannot_be_read_is_reported(folder: Path) -> None:
    sources: list = [folder / "open" / "a.md", str(folder / "b.txt"), folder / "c.md", folder / "d.exe"]
    result = FileReader().run(sources=sources, meta={"year": 2024})
    (document,) = result["documents"]
    path = (folder / "open" / "a.md").resolve().as_posix()
    assert document.content == "# A\r\n\r\ntext\f"
    assert document.meta == {"source_id": path, "file_path": path, "year": 2024}
    assert [Path(failure["source"]).name for failure in result["failed"]] == ["b.txt", "c.md", "d.exe"]
    assert "not supported" in reasons(result)[2]
    assert FileReader("latin-1").run(sources=[folder / "b.txt"])["documents"][0].content == "café"


def test_an_upload_is_named_by_its_metadata(folder: Path) -> None:
    upload = ByteStream(b"text", meta={"source_id": "up.md"})
    (document,) = FileReader(folder=str(folder)).run(sources=[upload])["documents"]
    assert (document.content, document.meta["source_id"]) == ("text", "up.md")


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"source_id": "doc-17", "file_path": "in/a.md"}, ("doc-17", "in/a.md")),
        ({"source_id": "doc-17", "file_name": "a.md"}, ("doc-17", "a.md")),
        ({"source_id": 0, "file_path": "a.md", "file_name": "b.exe"}, (0, "a.md")),
    ],
)
def test_the_type_of_an_upload_is_that_of_its_file(meta: dict, expected: tuple) -> None:
    (document,) = FileReader().run(sources=[ByteStream(b"text", meta=meta)])["documents"]
    assert (document.meta["source_id"], document.meta["file_path"]) == expected


def test_documents_share_nothing_with_each_other_or_the_caller(folder: Path) -> None:
    shared, upload = {"tags": ["a"]}, ByteStream(b"text", meta={"file_path": "up.md", "acl": {"groups": ["ops"]}})
    first, other = FileReader().run(sources=[upload, folder / "open" / "a.md"], meta=shared)["documents"]
    first.meta["tags"].append("b")
    first.meta["acl"]["groups"].append("b")
    assert (other.meta["tags"], shared, upload.meta["acl"]) == (["a"], {"tags": ["a"]}, {"groups": ["ops"]})


def test_metadata_of_another_number_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"per source \(1\), got 2"):
        FileReader().run(sources=[folder / "b.txt"], meta=[{}, {}])


def test_only_files_of_the_folder_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = folder / "open" / "a.md", [folder / "b.txt", folder / "open" / ".." / "b.txt"]
    sources: list = [inside, *outside, folder / "open" / "link.txt"]
    reader = through_yaml(FileReader("latin-1", folder=str(folder / "open")))
    result = reader.run(sources=sources)
    assert len(result["documents"]) == 1
    assert reasons(result) == ["files from here may not be read"] * 3
    monkeypatch.setenv("ADV_RETRIEVAL_FILES", "")
    assert reasons(FileReader().run(sources=[inside])) == ["files from here may not be read"]
    assert len(reader.run(sources=[inside])["documents"]) == 1


def test_libraries_are_silent_about_a_broken_file_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    broken = {".pdf": b"%PDF-1.4 nothing more", ".docx": b"no archive", ".html": b"\xff\x00"}
    loggers = [logging.getLogger(name) for name in ("pypdf", "trafilatura", "haystack.components.converters")]
    caplog.set_level(logging.ERROR, logger="pypdf")
    levels = [logger.level for logger in loggers]
    sources: list = [ByteStream(data, meta={"source_id": f"a{suffix}"}) for suffix, data in broken.items()]
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda _: FileReader().run(sources=sources), range(8)):
            assert reasons(result) == [f"no text could be read from this {suffix} file" for suffix in broken]
    assert caplog.text == ""
    assert [logger.level for logger in loggers] == levels


async def test_async_gives_the_same(folder: Path) -> None:
    sources: list = [folder / "open" / "a.md", folder / "c.md"]
    assert await FileReader().run_async(sources=sources) == FileReader().run(sources=sources)
