"""Real servers in processes of their own, on free ports: as `adv-retrieval serve` and as plain Hayhooks start them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx

NO_MODEL = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def running(command: Sequence[str], log: Path, cwd: Path | None = None, **environment: str) -> Iterator[httpx.Client]:
    """Start a server, wait until it answers, and kill it in the end."""
    port = free_port()
    command = [*command, "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd, env=os.environ | environment)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        try:
            for _ in range(1200):
                assert process.poll() is None, log.read_text()
                try:
                    client.get("/status").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
            yield client
        finally:  # before the client is closed, as a request of another thread would not notice that
            process.send_signal(signal.SIGKILL)
            process.wait()


def served(index: Path, log: Path, **environment: str) -> AbstractContextManager[httpx.Client]:
    """Serve an index with `adv-retrieval serve`."""
    command = [
        sys.executable,
        "-m",
        "haystack_adv_retrieval.cli",
        "serve",
        "--from",
        str(index),
        "--summaries",
        "extractive",
    ]
    return running(command, log, **NO_MODEL | environment)


def hayhooks(
    command: Sequence[str], index: Path, folder: Path, **environment: str
) -> AbstractContextManager[httpx.Client]:
    """Run plain Hayhooks in a folder that holds one called `pipelines`."""
    environment = {
        "ADV_RETRIEVAL_INDEX": str(index),
        "HAYSTACK_DESERIALIZATION_ALLOWLIST": "haystack_adv_retrieval",
        "HAYHOOKS_STARTUP_DEPLOY_STRATEGY": "sequential",
        **environment,
    }
    script = str(Path(sys.executable).with_name("hayhooks"))
    return running([script, *command], folder / "log", folder, **environment)
