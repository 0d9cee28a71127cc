import json
from typing import Any

from fastapi import HTTPException, UploadFile
from hayhooks import BasePipelineWrapper

from haystack_adv_retrieval.serving import Indexing


class PipelineWrapper(BasePipelineWrapper):
    """Index uploaded files."""

    skip_mcp = True  # an upload is no argument of a tool

    def setup(self) -> None:
        """Load the indexing pipeline."""
        self.indexing = Indexing()

    async def run_api_async(self, files: list[UploadFile] | None = None, meta: str = "{}") -> dict[str, Any]:
        """Add Markdown, text, HTML, PDF or DOCX files to the index, with metadata (a JSON object) for all of them."""
        try:
            shared = json.loads(meta)
        except ValueError:
            shared = None
        if not isinstance(shared, dict):
            raise HTTPException(422, "meta must be a JSON object")
        uploads = [(file.filename or "", await file.read()) for file in files or []]
        return await self.indexing.index_files(uploads, shared)
