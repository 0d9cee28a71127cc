from typing import Any

from fastapi import UploadFile
from hayhooks import BasePipelineWrapper

from haystack_adv_retrieval.serving.indexing import Indexing


class PipelineWrapper(BasePipelineWrapper):
    """Index uploaded files."""

    skip_mcp = True  # an upload is no argument of a tool

    def setup(self) -> None:
        """Load the indexing pipeline."""
        self.indexing = Indexing()

    async def run_api_async(self, files: list[UploadFile] | None = None, meta: str = "{}") -> dict[str, Any]:
        """
        Add Markdown, text, HTML, PDF or DOCX files to the index.

        :param files: The files. The last part of its name is a file's source_id.
        :param meta: Metadata for all of them, as a JSON object.
        :returns: The index report.
        """
        uploads = [(file.filename or "", await file.read()) for file in files or []]
        return await self.indexing.index_files(uploads, meta)
