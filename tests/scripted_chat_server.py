"""
A real HTTP server with OpenAI's chat protocol, whose replies are scripted.

A test says what the model replies and looks at what it was asked. Everything between (client, connection, threads,
time limits, streaming) is real. Use the fixture `chat_server`:

    chat_server.script('{"ranking": [2, 1]}', Answer(status=503), Answer("slow", delay=2.0))
    component = Component(chat_generator=chat_server.generator())
    ...
    assert "Barley" in chat_server.prompts[0]

Replies are used in order of arrival and the last one repeats. A function of the request's body answers by content.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.utils import Secret


@dataclass(frozen=True)
class Answer:
    """
    One scripted answer.

    :param text: What the model says.
    :param delay: Seconds until the answer.
    :param status: HTTP status; anything but 200 is an error, with `text` as its message.
    :param logprobs: Log-probabilities, as in a choice's `logprobs.content`.
    :param finish_reason: Why the model stopped.
    :param drop: Close the connection without an answer.
    :param headers: Additional response headers.
    """

    text: str = ""
    delay: float = 0.0
    status: int = 200
    logprobs: list[dict[str, Any]] | None = None
    finish_reason: str = "stop"
    drop: bool = False
    headers: dict[str, str] = field(default_factory=dict)


Scripted = str | Answer | Callable[[dict[str, Any]], "str | Answer"]


class ChatServer:
    """The server. `requests` holds the bodies in order of arrival, `peak` the most that were answered at once."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.peak = 0
        self._script: list[Scripted] = [""]
        self._busy = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [request["messages"][-1]["content"] for request in self.requests]

    def script(self, *replies: Scripted) -> None:
        """Set the replies to the next requests, and forget the requests so far."""
        with self._lock:
            self._script, self.requests, self.peak = list(replies), [], 0

    def generator(self, **kwargs: Any) -> OpenAIChatGenerator:
        """Make a chat generator that talks to this server, without retries of its own."""
        defaults: dict[str, Any] = {"api_key": Secret.from_token("none"), "model": "scripted", "max_retries": 0}
        return OpenAIChatGenerator(api_base_url=self.url, **defaults | kwargs)

    def stop(self) -> None:
        """Stop listening: whoever calls from now on is refused. Requests that are being answered end without one."""
        self._server.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def _answering(self, body: dict[str, Any]) -> Iterator[Answer]:
        with self._lock:
            self.requests.append(body)
            self._busy += 1
            self.peak = max(self.peak, self._busy)
            reply = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        try:
            scripted = reply(body) if callable(reply) else reply
            yield scripted if isinstance(scripted, Answer) else Answer(scripted)
        finally:
            with self._lock:
                self._busy -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stopped = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent when a client has gone: time limits are part of what is tested."""


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if server._server.stopped.is_set():
                self.close_connection = True
                return
            with server._answering(body) as answer:
                stopped = server._server.stopped.wait(answer.delay) if answer.delay else False
                if answer.drop or stopped:
                    self.close_connection = True
                elif answer.status != 200:
                    self._send(answer, {"error": {"message": answer.text, "type": "scripted", "code": None}})
                elif body.get("stream"):
                    self._stream(answer)
                else:
                    self._send(answer, _completion(body, answer))

        def _send(self, answer: Answer, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: Answer) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for delta, reason in [
                *(({"role": "assistant", "content": word}, None) for word in re.findall(r"\s*\S+\s*", answer.text)),
                ({}, answer.finish_reason),
            ]:
                choice = {"index": 0, "delta": delta, "finish_reason": reason}
                chunk = {"id": "c", "object": "chat.completion.chunk", "created": int(time.time()), "model": "scripted"}
                self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    return Handler


def _completion(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    read = sum(len(str(message["content"]).split()) for message in body["messages"])
    written = len(answer.text.split())
    message = {"role": "assistant", "content": answer.text}
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    if answer.logprobs is not None:
        choice["logprobs"] = {"content": answer.logprobs}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": [choice],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }
