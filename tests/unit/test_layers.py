"""The layers of docs/architecture.md: a module imports from its own layer and from those below it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import dovetail
from structure import PACKAGE, reached, trees

LAYERS = (
    "errors",
    "ir",
    "ops",
    "laws",
    "storage",
    "formats",
    "report",
    "engine",
    "runtime",
    "compare",
    "passes",
    "measure data compat ngraph",
    "cli",
)
"""The packages, the lowest layer first."""
MUTUAL = ("ops", "ir.symbolic")
"""The packages whose modules may import each other: operators for their gradients, operations on expressions for their parts."""

# What `import dovetail` leaves to those who need it: array libraries, file formats' packages, the terminal's.
LATE = (
    "PIL array_api_compat click cupy dask distributed fast_sugiyama google.protobuf jax onnx onnxruntime openvino "
    "pandas pyarrow pyspark ray resvg_py rich torch xml.etree.ElementTree zarr"
).split()


class Import(NamedTuple):
    """One room's import of another's module."""

    source: str
    target: str
    path: Path
    line: int
    is_late: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line} imports {self.target}"


def room_of(module: str) -> str:
    """Return the name in LAYERS of a module, given without ``dovetail``: its own, or that of the package around it."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in LAYER_OF), parts[0])


def room(path: Path) -> str:
    return room_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"))


def syntax_tree(path: Path) -> ast.Module:
    return trees()[str(path.relative_to(PACKAGE))]


def import_statements(node: ast.AST, is_late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield each import inside a statement that is not for types alone, and whether a function defers it."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, is_late
    elif not isinstance(node, ast.expr) and not is_for_types(node):
        for child in ast.iter_child_nodes(node):
            yield from import_statements(child, is_late or isinstance(node, ast.FunctionDef))


@cache
def imports_of(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    return list(import_statements(syntax_tree(path)))


def imports(path: Path) -> Iterator[Import]:
    for node, is_late in imports_of(path):
        for target in targets(node):
            if target != room(path):
                yield Import(room(path), target, path, node.lineno, is_late)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the rooms that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, "imports are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        first, _, rest = name.partition(".")
        if first == "dovetail" and rest.split(".")[0] not in ("__version__", "_native"):
            yield room_of(rest)


LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path for path in PACKAGE.rglob("*.py")
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in ("__init__", "__main__"))


def test_every_room_has_a_layer() -> None:
    assert {room(path) for path in FILES} == set(LAYER_OF)


def test_imports_point_down() -> None:
    upward = [each for path in FILES for each in imports(path) if LAYER_OF[each.target] > LAYER_OF[each.source]]
    assert [str(each) for each in upward] == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: set(_imported_modules(path)) for module, path in MODULES.items()}
    sorter = TopologicalSorter({module: imports for module, imports in graph.items() if not module.startswith(MUTUAL)})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_an_import_inside_a_function_leaves_a_module_unloaded_or_closes_a_cycle() -> None:
    at_the_top = {name: set(_imported_modules(path, deferred=False)) | _packages_of(name) for name, path in MODULES.items()}
    loaded = {name: reached(at_the_top, name) for name in MODULES}
    wanton = [
        f"{path.relative_to(PACKAGE.parent)}: {target}"
        for name, path in MODULES.items()
        for target in sorted(set(_imported_modules(path, deferred=True)))
        if target in loaded[name] and name not in loaded[target]
    ]
    assert wanton == [], "imports of modules that are loaded anyway belong at the top of the file"


def _packages_of(name: str) -> set[str]:
    """Return the packages around a module, which are loaded before it."""
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def _imported_modules(path: Path, deferred: bool | None = None) -> Iterator[str]:
    """Yield the modules that a module imports, for types alone not: all, or those of its functions, or those of its top."""
    for node, is_late in imports_of(path):
        if isinstance(node, ast.ImportFrom) and deferred in (None, is_late):
            package = (node.module or "").removeprefix("dovetail").removeprefix(".")
            for alias in node.names:
                name = f"{package}.{alias.name}".removeprefix(".")
                module = name if name in MODULES else package
                if module in MODULES and MODULES[module] != path:
                    yield module


def test_no_format_imports_another() -> None:
    folders = sorted(path.name for path in (PACKAGE / "formats").iterdir() if path.is_dir() and path.name != "__pycache__")
    assert len(folders) > 1
    for folder in folders:
        others = "|".join(other for other in folders if other != folder)
        for path in (PACKAGE / "formats" / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(rf"dovetail\.formats(\.({others})\b| import .*\b({others})\b)", text), path


def test_the_layers_of_the_documentation_are_these() -> None:
    page = PACKAGE.parents[1] / "docs" / "architecture.md"
    if not page.exists():
        pytest.skip("an installed package comes without its documentation")
    intro = "Layers, each importing only from its own and those below it:"
    (line,) = re.findall(rf"^{intro}\s(.*?)\. `tests", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    written = [part.split() for part in line.replace("`", "").split(">")]
    assert [sorted(names) for names in written] == [sorted(names.split()) for names in reversed(LAYERS)]


def imported(code: str) -> list[str]:
    """Return the modules that a new process has imported after ``code``."""
    code += "; import sys; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_an_import_of_dovetail_imports_no_other_module_of_it() -> None:
    modules = imported("import dovetail; dovetail.__all__, dovetail.__version__")
    assert [name for name in modules if name.startswith("dovetail.") or name == "numpy"] == []


def test_public_names_import_no_array_library_but_numpy_no_format_and_few_operators() -> None:
    modules = imported("import dovetail; [getattr(dovetail, name) for name in dovetail.__all__]")
    assert set(LATE) & set(modules) == set()
    assert len([name for name in modules if name.startswith("dovetail.ops.")]) < 20


def test_all_public_names_exist() -> None:
    for name in dovetail.__all__:
        assert getattr(dovetail, name) is not None and name in dir(dovetail)
    assert not hasattr(dovetail, "nothing") and not hasattr(dovetail, "__path_of__")


def test_help_imports_no_command() -> None:
    code = "import sys; from dovetail.cli import dovetail as main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = found.stdout.splitlines()[-1].split()
    assert [name for name in loaded if name.startswith("dovetail.cli.")] == []
    assert [name for name in loaded if name in LATE and name != "click"] == []


SHARED_CLASS_NAMES = {
    *("Add", "Concat", "Constant", "Multiply", "Reshape", "Slice", "Split", "Subtract"),  # nGraph's operators
    "Node",  # nGraph's and OpenVINO's node
    *("Core", "Layout", "Model", "Output", "Shape", "Tensor"),  # OpenVINO's classes
    "Optional",  # ONNX's operator and its type
    "EngineError",  # dovetail's and onnxruntime's
    "ExecutionMode",  # onnxruntime's and OpenVINO's
}


def test_no_other_class_name_is_used_twice() -> None:
    names = Counter(node.name for path in FILES for node in ast.walk(syntax_tree(path)) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == SHARED_CLASS_NAMES
