"""What every test has: no network for models, no telemetry, the package on the allow-list, a scripted chat server."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from collections.abc import Iterator

import pytest
from haystack.core.serialization_security import allow_deserialization_module
from scripted_chat_server import ChatServer

allow_deserialization_module("haystack_adv_retrieval")


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """A real chat server that says what the test scripts."""
    server = ChatServer()
    yield server
    server.stop()
