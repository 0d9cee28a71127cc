"""What a server allows its callers, and what it tells them when something fails."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException
from haystack import logging

logger = logging.getLogger(__name__)

MAX_QUERY_LENGTH = 4_000  # characters
MAX_TOP_K = 100
MAX_LENGTH = 100_000  # characters of all results together
MAX_REQUEST_BYTES = 50_000_000
MAX_FILES = 100
MAX_TEXTS = 1_000
SUMMARIES_VARIABLE = "ADV_RETRIEVAL_SUMMARIES"
TIMEOUT = float(os.environ.get("ADV_RETRIEVAL_TIMEOUT", "120"))  # seconds
INDEXING_TIMEOUT = float(os.environ.get("ADV_RETRIEVAL_INDEXING_TIMEOUT", "1800"))  # seconds

WENT_WRONG = "Something went wrong; the server's log says what"


@contextmanager
def discreet() -> Iterator[None]:
    """
    Turn whatever fails inside into an error that may be shown.

    An `HTTPException` is meant for the caller and passes. Of anything else the caller learns only that it happened: its
    text could name folders, servers or keys, and is logged instead.
    """
    try:
        yield
    except HTTPException:
        raise
    except Exception as error:
        logger.exception("A request failed: {error}", error=error)
        raise HTTPException(500, WENT_WRONG) from None


def check_query(query: str) -> None:
    """
    Refuse a question without words, and one that is too long.

    :param query: The question.
    :raises HTTPException: 422, if it is one of these.
    """
    if not query.strip() or len(query) > MAX_QUERY_LENGTH:
        raise HTTPException(422, f"query must have 1 to {MAX_QUERY_LENGTH} characters, got {len(query)}")


def check_encodable(value: Any, name: str) -> None:
    """
    Refuse what Python reads out of JSON and nothing else can: half characters, and numbers that are none.

    :param value: What a caller sent.
    :param name: What to call it.
    :raises HTTPException: 422, if it cannot be stored or sent back.
    """
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise HTTPException(422, f"{name} cannot be read: {error}") from None
