"""The package's layers, and what importing it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import haystack_adv_retrieval

PACKAGE = Path(haystack_adv_retrieval.__file__).parent
# Each layer may import from its own and from those below it.
LAYERS = [
    {"core"},
    {"calls", "docx_markdown", "models", "parameters"},
    {"stores", "nested"},
    {"llm", "context", "compression", "store_fields"},
    {"document_stores", "components", "wrapped_retriever"},
    {"indexing", "pipelines", "terminal"},
    {"evaluation", "serving"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """List the modules that a file imports, as full names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    return LEVEL.get(parts[1]) if parts[0] == "haystack_adv_retrieval" and len(parts) > 1 else None


def test_every_module_has_a_layer():
    names = {path.stem for path in PACKAGE.glob("*.py")} | {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert names - {"__init__", "__pycache__", "_pipelines"} == set(LEVEL)


def test_imports_point_downward():
    wrong = [
        (path.relative_to(PACKAGE).as_posix(), module)
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
        for module in imports_of(path)
        if (level := layer_of(module)) is not None
        and level > LEVEL[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    ]
    assert wrong == []


def test_core_imports_nothing_of_haystack():
    found = {module for path in (PACKAGE / "core").rglob("*.py") for module in imports_of(path)}
    assert not {
        module for module in found if module.split(".")[0] in {"haystack", "haystack_integrations", "qdrant_edge"}
    }


def test_importing_the_package_loads_neither_torch_nor_the_engine():
    code = "import sys, haystack_adv_retrieval as package; print(*sys.modules, *package.__all__)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "qdrant_edge", "transformers", "haystack"} & set(loaded)
    assert {"HierarchicalSplitter", "ParentExpander", "LLMRanker", "Compressor"} <= set(loaded)


def test_every_public_name_can_be_imported():
    for name in haystack_adv_retrieval.__all__:
        assert getattr(haystack_adv_retrieval, name) is not None
        assert name in dir(haystack_adv_retrieval)
