"""Measures of the source's structure: ``python tests/structure.py [--list NAME] [--json]``.

Prints one number a line; ``--list`` prints the places that a number counts, one a line. All is read from the syntax trees of
``src/dovetail``, but for the names of the operators.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click

import dovetail
from dovetail.ir.host.gc_pause import pause_gc

PACKAGE = Path(dovetail.__file__).parent
NOT_ENTRIES = {"__init__.py", "__main__.py", "_native.pyi", "py.typed", "__pycache__"}
CODE = re.compile(r"[A-Za-z]\w*\.[A-Za-z][\w-]*")
"""A text that could be meant as a code of an error."""
RAISING = re.compile(r"(\w*Error|Diagnostic|warn|_?fault|unsupported_error|properties|element_type)$")
# Words with a dot that are no codes: names of domains and kernels.
OTHER_WORDS = {"ai.onnx", "cast.f32", "dovetail.openvino", "recurrent.cells", "recurrent.dynamic_quantize_lstm"}
TABLE = 4
"""The number of operators from which on a module-level value counts as a table of operators."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each module by its path in the package."""
    with pause_gc():
        return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def operators() -> frozenset[str]:
    """Return the names of all operator classes."""
    from dovetail import ops
    from dovetail.ir.op import Op

    for module in pkgutil.walk_packages(ops.__path__, "dovetail.ops."):
        importlib.import_module(module.name)
    classes = [Op]
    for each in classes:
        classes += each.__subclasses__()
    return frozenset(each.__name__ for each in classes[1:])


def entries() -> Iterator[str]:
    """Files and packages at the top of the package."""
    yield from sorted(path.name for path in PACKAGE.iterdir() if path.name not in NOT_ENTRIES and path.suffix != ".so")


def operator_tables() -> Iterator[str]:
    """Module-level values, but for ``__all__``, that name four or more operators."""
    for path, tree in trees().items():
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                count = len(_operators_in(statement.value))
                if count >= TABLE and ast.unparse(target) != "__all__":
                    yield f"{path}:{statement.lineno} {ast.unparse(target)}, {count} operators"


def _operators_in(value: ast.expr) -> set[str]:
    words: set[Any] = {
        item.id if isinstance(item, ast.Name) else item.attr if isinstance(item, ast.Attribute) else item.value
        for item in ast.walk(value)
        if isinstance(item, ast.Name | ast.Attribute) or (isinstance(item, ast.Constant) and isinstance(item.value, str))
    }
    return words & operators()


def error_codes() -> Iterator[str]:
    """Codes of errors."""
    yield from (f"{code}, in {len(places)} modules" for code, places in sorted(raised().items()))


@cache
def raised() -> dict[str, set[str]]:
    """Every code in the source with its modules: arguments of errors, and words of the same areas anywhere else."""
    found: dict[str, set[str]] = {}
    words: dict[str, set[str]] = {}
    for path, tree in trees().items():
        # The names in the package's __init__ are modules.
        for item in ast.walk(tree) if path != "__init__.py" else ():
            if isinstance(item, ast.Call) and RAISING.search(_called_name(item)):
                for code in _codes(item):
                    found.setdefault(code, set()).add(path)
            elif isinstance(item, ast.Constant) and isinstance(item.value, str) and CODE.fullmatch(item.value):
                words.setdefault(item.value, set()).add(path)
    areas = {code.partition(".")[0] for code in found}
    for word in words.keys() - OTHER_WORDS:
        if word.partition(".")[0] in areas:
            found.setdefault(word, set()).update(words[word])
    return found


def _codes(call: ast.Call) -> Iterator[str]:
    """Yield the code that a call gives, or the two that it chooses from."""
    for argument in (each for each in call.args if isinstance(each, ast.Constant | ast.IfExp)):
        for item in ast.walk(argument):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and CODE.fullmatch(item.value):
                yield item.value


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def option_declarations() -> Iterator[str]:
    """Declarations of options and arguments of the command line."""
    for path, tree in trees().items():
        for item in ast.walk(tree):
            if isinstance(item, ast.Call) and ast.unparse(item.func) in ("click.option", "click.argument"):
                yield f"{path}:{item.lineno} {' '.join(ast.unparse(each) for each in item.args)}"


def deferred_imports() -> Iterator[str]:
    """Imports of the package's own modules inside functions."""
    yield from (f"{path}:{item.lineno} {ast.unparse(item)}" for path, item in _deferred())


def _deferred() -> Iterator[tuple[str, ast.ImportFrom | ast.Import]]:
    for path, tree in trees().items():
        functions = [item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {id(item): item for function in functions for item in ast.walk(function)}
        for item in inside.values():
            if isinstance(item, ast.ImportFrom | ast.Import) and "dovetail" in ast.unparse(item):
                yield path, item


def circles() -> Iterator[str]:
    """Sets of top-level entries that import each other, deferred imports included."""
    graph: dict[str, set[str]] = {}
    for path, tree in trees().items():
        name = path.removesuffix(".py").split("/")[0]
        for item in ast.walk(tree):
            if isinstance(item, ast.ImportFrom) and (item.module or "").split(".")[0] == "dovetail":
                parts = (item.module or "").split(".")[1:]
                graph.setdefault(name, set()).update([parts[0]] if parts else [alias.name for alias in item.names])
    targets = {name: reached(graph, name) for name in graph}
    groups = {frozenset(other for other in targets[name] if name in targets.get(other, ())) for name in graph}
    yield from sorted(" ".join(sorted(group)) for group in groups if len(group) > 1)


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the names that a graph of imports leads to from one of them."""
    found: set[str] = set()
    rest = [start]
    while rest:
        new = graph.get(rest.pop(), set()) - found
        found |= new
        rest += new
    return found


def untyped_parameters() -> Iterator[str]:
    """Annotated parameters of the type Any."""
    yield from (f"{path}:{item.lineno} {item.arg}" for path, item in _parameters() if _is_any(item.annotation))


def typed_parameters() -> Iterator[str]:
    """Annotated parameters of another type."""
    yield from (f"{path}:{item.lineno} {item.arg}" for path, item in _parameters() if not _is_any(item.annotation))


def _parameters() -> Iterator[tuple[str, ast.arg]]:
    for path, tree in trees().items():
        yield from ((path, item) for item in ast.walk(tree) if isinstance(item, ast.arg) and item.annotation is not None)


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def modules() -> Iterator[str]:
    """Files of Python."""
    yield from trees()


def lines_of_code() -> Iterator[str]:
    """Lines that hold a token of the syntax tree: no docstring, no comment, no blank line."""
    for path, tree in trees().items():
        strings = {
            line
            for item in ast.walk(tree)
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
            for line in range(item.lineno, (item.end_lineno or item.lineno) + 1)
        }
        text = (PACKAGE / path).read_text("utf-8").splitlines()
        for number, line in enumerate(text, 1):
            if number not in strings and line.strip() and not line.lstrip().startswith("#"):
                yield f"{path}:{number}"


def public_functions_without_example() -> Iterator[str]:
    """Public functions whose docstring has no example."""
    for name in dovetail.__all__:
        item: Any = getattr(dovetail, name)
        if callable(item) and not isinstance(item, type) and ">>>" not in (item.__doc__ or ""):
            yield name


def array_differences() -> Iterator[str]:
    """Functions of compare, data and passes that take the absolute value of a difference: places that compare arrays."""
    for path, tree in trees().items():
        if path.startswith(("compare/", "data/", "passes/")):
            for function in (item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)):
                calls = (item for item in ast.walk(function) if isinstance(item, ast.Call) and item.args)
                if any(ast.unparse(item.func) in ("abs", "np.abs") and _is_difference(item.args[0]) for item in calls):
                    yield f"{path}:{function.lineno} {function.name}"


def _is_difference(item: ast.expr) -> bool:
    return isinstance(item, ast.BinOp) and isinstance(item.op, ast.Sub)


def law_tables() -> Iterator[str]:
    """Module-level tables of laws: places that state laws."""
    for path, tree in trees().items():
        for item in tree.body:
            if isinstance(item, ast.Assign) and "Law(" in ast.unparse(item.value):
                yield f"{path}:{item.lineno}"


MEASURES: dict[str, Callable[[], Iterator[str]]] = {
    each.__name__: each
    for each in (
        entries, modules, lines_of_code, operator_tables, error_codes, option_declarations, deferred_imports,
        circles, untyped_parameters, typed_parameters, public_functions_without_example, array_differences, law_tables,
    )
}  # fmt: skip


@click.command()
@click.option("--list", "listed", type=click.Choice(list(MEASURES)), help="Print the places that a measure counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(listed: str | None, as_json: bool) -> None:
    if listed is not None:
        click.echo("\n".join(MEASURES[listed]()))
        return
    counts = {name: sum(1 for _ in measure()) for name, measure in MEASURES.items()}
    if as_json:
        click.echo(json.dumps(counts))
    else:
        for name, count in counts.items():
            click.echo(f"{name.replace('_', ' '):36}{count:>8}")


if __name__ == "__main__":
    main()
