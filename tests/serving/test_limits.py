"""What callers are told when something takes too long or fails, without a server around it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("hayhooks")

from fastapi import FastAPI, HTTPException
from haystack.components.embedders import MockDocumentEmbedder

from haystack_adv_retrieval.indexing.maintenance import status
from haystack_adv_retrieval.serving import indexing, retrieval
from haystack_adv_retrieval.serving.app import Guard
from haystack_adv_retrieval.serving.limits import WENT_WRONG, check_encodable, discreet


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADV_RETRIEVAL_INDEX", str(tmp_path / "index"))
    return tmp_path / "index"


def test_what_is_said_inside_stays_inside(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(HTTPException) as caught, discreet():
        raise RuntimeError("no access to /srv/keys with the key sk-123")
    assert (caught.value.status_code, caught.value.detail, caught.value.__cause__) == (500, WENT_WRONG, None)
    assert "sk-123" in caplog.text
    with pytest.raises(HTTPException, match="too large"), discreet():
        raise HTTPException(413, "too large")


@pytest.mark.parametrize("error", [RuntimeError("the key sk-123"), HTTPException(500, "the key sk-123")])
async def test_what_fails_anywhere_else_tells_nothing_either(error: Exception) -> None:
    app = FastAPI()

    @app.get("/fails")
    async def fail() -> None:
        raise error

    transport = httpx.ASGITransport(Guard(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        reply = await client.get("/fails")
    assert (reply.status_code, reply.json()) == (500, {"detail": WENT_WRONG})


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}, "\ud800", {"\udfff": 1}])
def test_what_cannot_be_sent_back_is_refused(value: Any) -> None:
    check_encodable({"a": [1, 2.5, None, "ü"]}, "meta")
    with pytest.raises(HTTPException, match="meta cannot be read") as caught:
        check_encodable(value, "meta")
    assert caught.value.status_code == 422


@pytest.mark.usefixtures("index")
async def test_a_search_that_takes_too_long_is_a_504(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "TIMEOUT", 0.0)
    with pytest.raises(HTTPException, match="longer than 0 seconds") as caught:
        await retrieval.Retrieval().retrieve("weir")
    assert caught.value.status_code == 504


@pytest.mark.usefixtures("index")
async def test_indexing_that_takes_too_long_is_a_504_and_the_next_attempt_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = indexing.Indexing()
    part._embedder = MockDocumentEmbedder(dimension=4)
    text = {"source_id": "weir", "content": "A weir holds water. " * 8, "meta": {}}
    monkeypatch.setattr(indexing, "INDEXING_TIMEOUT", 0.0)
    with pytest.raises(HTTPException, match="send it again") as caught:
        await part.index_texts([text])
    assert caught.value.status_code == 504
    monkeypatch.setattr(indexing, "INDEXING_TIMEOUT", 600.0)
    report = await part.index_texts([text])
    assert (report["added"] + report["updated"], report["failures"]) == (1, {})
    assert not status(part._store).drift
    part._store.close()


@pytest.mark.usefixtures("index")
async def test_why_a_store_fails_is_for_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    part = indexing.Indexing()
    part._embedder = MockDocumentEmbedder(dimension=4)

    async def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError("No space left on device: '/srv/index'")

    monkeypatch.setattr(part._store, "write_documents_async", fail)
    with pytest.raises(HTTPException) as caught:
        await part.index_texts([{"source_id": "weir", "content": "A weir.", "meta": {}}])
    assert (caught.value.status_code, caught.value.detail) == (500, {"failures": {"weir": WENT_WRONG}})
    part._store.close()
