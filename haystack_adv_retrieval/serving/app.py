"""The server's application: Hayhooks with every pipeline of a folder, within limits, and safe to start."""

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from haystack import logging
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystack_adv_retrieval.components.file_reader import FOLDER_VARIABLE
from haystack_adv_retrieval.llm.chat_model import NO_KEY
from haystack_adv_retrieval.pipelines import pipelines_folder
from haystack_adv_retrieval.serving.limits import (
    MAX_REQUEST_BYTES,
    SUMMARIES_VARIABLE,
    WENT_WRONG,
    check_encodable,
    check_query,
)

logger = logging.getLogger(__name__)


class Guard:
    """
    ASGI middleware that keeps a server within limits.

    Refuses requests that are too large, and the deployment of code; keeps what went wrong inside the server's log.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_REQUEST_BYTES, allow_deploy: bool = False) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.allow_deploy = allow_deploy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        if not self.allow_deploy and (path.startswith(("/deploy", "/undeploy"))):
            await _reply(send, 403, "Pipelines cannot be deployed here")
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.max_bytes:
            await _reply(send, 413, f"A request must not be larger than {self.max_bytes} bytes")
            return
        received = 0
        started = hidden = False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise HTTPException(413, f"A request must not be larger than {self.max_bytes} bytes")
            return message

        async def hiding(message: Message) -> None:
            nonlocal started, hidden
            if message["type"] == "http.response.start":
                started, hidden = True, message["status"] == 500
            if hidden and message["type"] == "http.response.start":
                await _reply(send, 500, WENT_WRONG)
            elif not hidden:
                await send(message)

        try:
            await self.app(scope, limited, hiding)
        except Exception as error:
            logger.exception("A request failed: {error}", error=error)
            if not started:
                await _reply(send, 500, WENT_WRONG)


async def _reply(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _name_missing_key(request: Request, error: Any) -> Response:
    """Reply as FastAPI does, but to a missing key with what is missing: Hayhooks makes a 500 of whatever fails."""
    if str(error.__cause__) == NO_KEY:
        error = HTTPException(503, NO_KEY)
    return await http_exception_handler(request, error)


def make_app(
    index: str | Path,
    pipelines: str | Path | None = None,
    *,
    summaries: str | None = None,
    files: str | Path | None = None,
    allow_deploy: bool = False,
) -> FastAPI:
    """
    Make the server's application.

    Sets the environment that Hayhooks and the pipelines read, so it has to be called before Hayhooks is imported.

    :param index: Folder of the index.
    :param pipelines: Folder with pipelines: YAML files, and folders with a `pipeline_wrapper.py`. None: those that come
        with the package.
    :param summaries: `"extractive"` or `"llm"`: also index a summary of each section of what callers send.
    :param files: Folder of files that callers may have indexed by path. None: they have to send what is indexed.
    :param allow_deploy: Whether callers may deploy pipelines, which means to run code.
    :returns: The application. It refuses to start if one of the pipelines does not.
    """
    copies = ExitStack()
    folder = Path(pipelines or pipelines_folder())
    if allow_deploy and pipelines is None:  # who undeploys deletes files, and these are the package's own
        folder = shutil.copytree(folder, Path(copies.enter_context(TemporaryDirectory())) / "pipelines")
    allowed = os.environ.get("HAYSTACK_DESERIALIZATION_ALLOWLIST", "").split(",")
    os.environ["HAYSTACK_DESERIALIZATION_ALLOWLIST"] = ",".join(filter(None, {*allowed, "haystack_adv_retrieval"}))
    os.environ["ADV_RETRIEVAL_INDEX"] = str(Path(index).resolve())
    os.environ[SUMMARIES_VARIABLE] = summaries or ""
    os.environ[FOLDER_VARIABLE] = str(Path(files).resolve()) if files else ""
    os.environ["HAYHOOKS_PIPELINES_DIR"] = str(folder.resolve())
    os.environ["HAYHOOKS_STARTUP_DEPLOY_STRATEGY"] = "sequential"  # wrappers and YAML race for lazy imports otherwise
    os.environ.setdefault("HAYHOOKS_CORS_ALLOW_ORIGINS", "[]")

    from hayhooks.server.app import create_app  # noqa: PLC0415 (reads the environment)
    from hayhooks.server.pipelines.registry import registry  # noqa: PLC0415

    async def check_fields(request: Request) -> None:
        """Refuse what no pipeline can read, and what this one does not take: nobody shall believe in a lost filter."""
        name, _, action = request.scope["route"].path.strip("/").partition("/")
        model: Any = (registry.get_metadata(name) or {}).get("request_model")
        if not model or action != "run" or "form" in request.headers.get("content-type", "").casefold():
            return
        try:
            sent = await request.json()
        except ValueError:  # FastAPI says so by itself
            return
        check_encodable(sent, "the request")
        if not isinstance(sent, dict):
            return
        if unknown := sent.keys() - model.model_fields:
            takes = ", ".join(model.model_fields)
            raise HTTPException(422, f"{name} takes {takes}, got {', '.join(sorted(unknown))}")
        if isinstance(query := sent.get("query"), str):
            check_query(query)

    app: FastAPI = create_app()
    app.router.dependencies.append(Depends(check_fields))  # of the routes that pipelines get when it starts
    app.add_exception_handler(HTTPException, _name_missing_key)
    start = app.router.lifespan_context
    wanted = {file.stem for file in folder.glob("*.y*ml")}
    wanted |= {file.parent.name for file in folder.glob("*/pipeline_wrapper.py")}

    @asynccontextmanager
    async def start_all(app: FastAPI) -> AsyncIterator[Any]:
        with copies:
            async with start(app) as state:
                if missing := wanted - set(registry.get_names()):
                    raise RuntimeError(f"These pipelines did not start, see above: {', '.join(sorted(missing))}")
                yield state
                for name in registry.get_names():
                    if hasattr(wrapper := registry.get(name), "close_async"):
                        await wrapper.close_async()

    app.router.lifespan_context = start_all
    app.add_middleware(Guard, allow_deploy=allow_deploy)
    return app
