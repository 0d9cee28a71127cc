"""
One server under load: many clients that search with every pattern and upload files, all at the same time.

The server is `adv-retrieval serve` in a process of its own, over an index of FOLDER with extractive summaries. Each
client, as soon as it has its last answer, asks one of the questions with one of the patterns that need no chat model,
through the wrapper `retrieve` or through the YAML pipeline; every fifth time it uploads the next version of a file of
its own instead, and asks for it. An answer is wrong if its best document is another one than before the load, or if an
uploaded file is not found, or found as anything but a span of the version that was uploaded last.

    python benchmarks/serving.py examples/handbook examples/handbook.questions.jsonl --seconds 60
"""

import argparse
import datetime
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from haystack_adv_retrieval.pipelines import PATTERNS

SEARCHES = sorted(set(PATTERNS) - {"reranked", "full"})
CLI = [sys.executable, "-m", "haystack_adv_retrieval.cli"]
EVERY = 10  # seconds between looks at the memory


@dataclass
class Load:
    """What the clients do and see."""

    url: str
    until: float
    questions: list[str]
    expected: dict[tuple[str, str, bool], Any]
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def client(self, number: int) -> None:
        dice, written = random.Random(number), 0
        with httpx.Client(base_url=self.url, timeout=300) as http:
            while time.monotonic() < self.until:
                if dice.random() < 0.2:
                    written += 1
                    self.upload(http, number, written)
                else:
                    self.search(http, dice.choice(self.questions), dice.choice(SEARCHES), dice.random() < 0.5)

    def post(self, http: httpx.Client, kind: str, path: str, **request: Any) -> Any:
        started = time.perf_counter()
        try:
            reply = http.post(path, **request)
            reply.raise_for_status()
        except httpx.HTTPError as error:
            self.errors.append(f"{kind}: {error!r}")
            return None
        self.seconds[kind].append(time.perf_counter() - started)
        return reply.json()["result"]

    def search(self, http: httpx.Client, question: str, pattern: str, from_yaml: bool) -> None:
        if from_yaml:
            result = self.post(http, "YAML pipeline", f"/{PATTERNS[pattern]}/run", json={"query": question})
            documents = [each for part in (result or {}).values() for each in part.get("documents", [])]
        else:
            result = self.post(http, "retrieve", "/retrieve/run", json={"query": question, "pattern": pattern})
            documents = (result or {}).get("documents", [])
        key = (question, pattern, from_yaml)
        if result is not None and self.expected.setdefault(key, best(documents)) != best(documents):
            self.wrong.append(f"{pattern}: {question}")

    def upload(self, http: httpx.Client, number: int, written: int) -> None:
        name = f"upload-{number}.md"
        text = f"# Ledger {number}\n\n" + " ".join(f"Zubu {number} quaffs {written} of {n} vorps." for n in range(5))
        report = self.post(http, "upload", "/index/run", files=[("files", (name, text.encode()))])
        if report is None:
            return
        body = {"query": f"zubu {number}", "filters": {"field": "meta.source_id", "operator": "==", "value": name}}
        found = self.post(http, "retrieve", "/retrieve/run", json=body)
        slices = [(each["content"], text[slice(*each["span"])]) for each in (found or {}).get("documents", [])]
        if report["failures"] or (found is not None and (not slices or any(a != b for a, b in slices))):
            self.wrong.append(f"{name}: {report} {slices}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the files to index")
    parser.add_argument("questions", type=Path, help="a file with a question a line, as JSON")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    lines = arguments.questions.read_text("utf-8").splitlines()[::9]
    with tempfile.TemporaryDirectory() as temporary:
        index = Path(temporary) / "index"
        command = [*CLI, "index", str(arguments.folder), "--to", str(index), "--summaries", "extractive"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with serving(index, Path(temporary) / "log") as (url, process):
            load = Load(url, 0.0, [json.loads(line)["question"] for line in lines], {})
            with httpx.Client(base_url=url, timeout=300) as http:
                for question in load.questions:
                    for pattern in SEARCHES:
                        load.search(http, question, pattern, from_yaml=False)
                        load.search(http, question, pattern, from_yaml=True)
            if load.errors or load.wrong:
                raise RuntimeError(f"wrong before there is any load: {load.errors} {load.wrong}")
            load.seconds.clear()
            load.until = time.monotonic() + arguments.seconds
            memory = [resident(process.pid)]
            with ThreadPoolExecutor(arguments.clients + 1) as pool:
                done = threading.Event()
                watching = pool.submit(watch, process.pid, memory, done)
                for work in [pool.submit(load.client, number) for number in range(arguments.clients)]:
                    work.result()
                done.set()
                watching.result()
    report = "\n".join(table(load, arguments, memory))
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n", encoding="utf-8")


@contextmanager
def serving(index: Path, log: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Run the server, without a chat model."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*CLI, "serve", "--from", str(index), "--port", str(port)],
            stdout=output,
            stderr=output,
            env={**os.environ, "OPENAI_API_KEY": ""},
        )
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            try:
                httpx.get(f"{url}/status").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        yield url, process
    finally:
        process.kill()
        process.wait()


def best(documents: list[dict[str, Any]]) -> tuple[Any, ...]:
    """The first document that the clients did not upload: its source and place."""
    metas = [each["meta"] for each in documents if not each["meta"]["source_id"].startswith("upload-")]
    return tuple(metas[0].get(key) for key in ("source_id", "split_idx_start", "split_idx_end")) if metas else ()


def resident(pid: int) -> int:
    """Megabytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def watch(pid: int, memory: list[int], done: threading.Event) -> None:
    while not done.wait(EVERY):
        memory.append(resident(pid))


def table(load: Load, arguments: argparse.Namespace, memory: list[int]) -> Iterator[str]:
    yield f"{datetime.date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, clients included"
    yield ", ".join(f"{name} {version(name)}" for name in ("haystack-adv-retrieval", "haystack-ai", "hayhooks"))
    yield ""
    yield f"{arguments.clients} clients for {arguments.seconds} s"
    yield f"{'request':<16}{'number':>8}{'p50 s':>8}{'p95 s':>8}{'max s':>8}"
    for kind, seconds in sorted(load.seconds.items()):
        p50, p95 = np.percentile(seconds, [50, 95])
        yield f"{kind:<16}{len(seconds):>8}{p50:>8.2f}{p95:>8.2f}{max(seconds):>8.2f}"
    yield f"errors {len(load.errors)}, wrong answers {len(load.wrong)}"
    for line in (load.errors + load.wrong)[:10]:
        yield f"  {line}"
    yield f"memory every {EVERY} s, MB: {' '.join(map(str, memory))}"


if __name__ == "__main__":
    main()
