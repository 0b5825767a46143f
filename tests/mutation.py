"""Mutants: the sources with one small fault each, and whether the tests see it.

    python tests/mutation.py [--paths PATH ...] [--lines FIRST-LAST] [--scope NAME] [--every N] [--seconds N] [--json] [--jobs N]
        [--list]

Without --paths: all of ``src/dovetail/ops`` and ``formats/op_mapping.py``. Everything is imported and every test collected
once; each mutant then runs in a forked child, where the faulty module is written over the imported one and the tests run
that reach the faulty statement, the quickest of each test function first, until one fails. The oracles are asked once, of
the unharmed sources, since foreign runtimes have threads, which do not survive a fork: a mutant that asks them something
else gets no answer, and is not killed by that. Printed are the survivors, as file:line, original -> mutant.
``mutants_equivalent.toml`` lists mutants that mean the same as the original, each with its reason. The exit code is 1 where a
mutant of Concat, Reshape or Split survives.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib
import json
import os
import pickle
import re
import resource
import select
import signal
import sys
import time
import tomllib
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dovetail"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
COMPLETE: dict[str, tuple[str, ...]] = {
    "ops/tensor/concat_split.py": ("",),
    "ops/tensor/reshape.py": ("Reshape", "items", "seen", "held", "as_i64", "open_shape", "reshaped"),
}
"""Code of which no mutant may survive: by module, names at its top level; "" stands for the whole module."""


def _files(folder: str, *names: str) -> list[str]:
    return [f"tests/{folder}/test_{name}.py" for name in names]


_SEMANTICS = _files("laws", *(f"semantics_{name}" for name in ("concat", "reshape", "split", "ngraph", "rulings")))
_SHAPES = _files("laws", "oracles", "shapes", "equivalent_forms", "windows", "gradients", "op_mapping_versions", "refusals")
_LAWS = [*_SHAPES, *_files("laws", "round_trips", "array_backends")]
_PLANS = [
    *_files("unit", "fusion", "memory_layout", "half_precision_rewrite", "quantized_layers"),
    *_files("laws", "native_graphs", "random_networks"),
    *_files("unit", "engine", "in_place", "half_precision", "integer_ops", "kernels_quantized", "quantized_weights"),
    *_files("unit", "plan_report", "arena", "aliasing", "plan_copies", "plan_facts", "specialization"),
    "tests/models/test_built_models.py",
]
_ALIASING = [
    "tests/laws/test_native_graphs.py",
    *_files("unit", "arena", "aliasing", "plan_copies", "plan_facts", "plan_report", "specialization", "engine", "in_place"),
]
TESTS: dict[str, tuple[list[str], str]] = {
    "ops/tensor/concat_split.py": ([*_SEMANTICS, *_SHAPES], "semantics or joining"),
    "ops/tensor/reshape.py": ([*_SEMANTICS, *_SHAPES], "semantics or Reshape or Flatten or queeze or is_refused"),
    "formats/op_mapping.py": (
        [
            *_SEMANTICS,
            "tests/laws/test_round_trips.py",
            "tests/laws/test_op_mapping_versions.py",
            "tests/unit/test_op_mapping.py",
        ],
        "semantics or op_mapping or round_trips",
    ),
    **{
        f"engine/{name}.py": (_PLANS, "test")
        for name in (
            "plan_verifier",
            "select/fusion",
            "rewrite/half_precision",
            "rewrite/qdq_fusion",
            "memory/in_place",
            "memory/affine_layout",
            "memory/physical_layout",
        )
    },
    **{
        f"engine/{name}.py": (_ALIASING, "test")
        for name in ("memory/arena", "memory/aliasing", "memory/allocation", "plan", "planner", "step_builder")
    },
}
"""By module: the files of its tests, and the -k expression that chooses among them. Any other family: the laws, over the cases of
its operators, and the tests of what operators share."""
_PROOFS = [
    *_files("laws", "random_terms", "equality", "operand_laws", "traits", "graph_laws", "branches"),
    *_files("unit", "equality", "simplify", "simplify_passes", "fusions"),
    *_files("reports", "equality_proofs", "simplifications", "optional_inputs", "loop_conditions"),
]
_RESHARD = [
    *_files("unit", "reshard", "reshard_resumption", "reshard_recipe", "radix_boxes", "chunked_arrays"),
    *_files("laws", "random_reshard"),
]
FOLDERS: dict[str, list[str]] = {
    **dict.fromkeys(("laws", "compare/prove", "passes/simplification"), _PROOFS),
    "storage": [
        *_files("unit", "files", "weights_files", "mapped_weights", "damaged_datasets", "plan_cache", "cache_folder"),
        *_files("unit", "interrupted_saves", "recorded_deviations", "map_resumption", "part_files", "map_rows"),
        *_files("reports", "written_files"),
        *_RESHARD,
    ],
    "data/rows": [
        *_files("unit", "mapper", "mapper_tables", "mapper_constants", "mapper_maps", "mapper_processes", "map_rows"),
        *_files("unit", "map_resumption", "part_files"),
        *_files("unit", "damaged_datasets", *(f"dataset_{kind}" for kind in ("numpy", "npz", "parquet", "zarr", "images"))),
    ],
    "data/tensors": _RESHARD,
}
"""The files of the tests of a folder's modules."""
_SEQUENCES = ("test_sequences",)
_SUBGRAPHS = ("test_loops", "test_control_gradients", "test_subgraphs")
BESIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ops/sequence/sequence.py", "ops/sequence/optional.py", "passes/eliminate_sequences.py"), _SEQUENCES),
    **dict.fromkeys(
        (
            "ops/control_flow/if_op.py",
            "ops/control_flow/gradients.py",
            "ops/control_flow/loop.py",
            "ops/attention/linear_attention.py",
        ),
        _SUBGRAPHS,
    ),
}
"""By module: what beside the laws over cases tests it."""
_SHARED = ("onnx_movement", "openvino_movement", "movement_shapes", "test_elementwise", "sliding_window", "refusals")

MEMORY = 12 << 30
WAITS = 60
"""How many times its processor time a mutant may take on the clock: it may sleep, or the machine may be busy."""


def tests_of(module: str) -> tuple[list[str], str]:
    if module in TESTS:
        files, words = TESTS[module]
    elif folder := next((folder for folder in FOLDERS if module.startswith(f"{folder}/")), None):
        files, words = FOLDERS[folder], "test"
    else:
        shared = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py") if path.stem.endswith(_SHARED)]
        beside = BESIDE.get(module, ())
        shared += [str(path.relative_to(ROOT)) for name in beside for path in (ROOT / "tests").rglob(f"{name}.py")]
        files, words = [*_LAWS, *shared], " or ".join([*operators(module), *_SHARED, *beside])
    return [name for name in files if (ROOT / name).exists()], words


def operators(module: str) -> list[str]:
    """Return the names by which the cases of a module's operators are found: those of its classes.

    Of a module that has none, all.
    """
    tree = ast.parse((PACKAGE / module).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [name for name in names if any(word.arg in ("sig", "onnx", "openvino") for word in _keywords(tree, name))] or ["test"]


def _keywords(tree: ast.Module, name: str) -> list[ast.keyword]:
    return next(node.keywords for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


# Faults


@dataclass(frozen=True)
class Mutant:
    """One fault. ``scope`` is the function or class it stands in, ``around`` the lines of the outermost of these, ``first`` the
    first line of the function it runs in (0: runs at import), ``lines`` the first and last line of its statement, without the
    statements inside that."""

    module: str
    line: int
    scope: str
    around: tuple[int, int]
    first: int
    lines: tuple[int, int]
    original: str
    mutated: str

    @property
    def is_complete(self) -> bool:
        names = COMPLETE.get(self.module, ())
        return "" in names or self.scope.partition(".")[0] in names

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return its key in ``mutants_equivalent.toml``, which does not depend on its line."""
        return self.module, self.scope, self.original, self.mutated

    def __str__(self) -> str:
        return f"src/dovetail/{self.module}:{self.line}: {self.original}  ->  {self.mutated}"


@dataclass(frozen=True)
class Made:
    """A mutant and what makes the tree of its module."""

    mutant: Mutant
    tree: Callable[[], ast.Module]


Change = Callable[[Any], ast.AST | None]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn:
    (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitXor: ast.BitOr,
}  # fmt: skip

_SYMMETRIC = (
    "equal", "Equal", "Add", "Multiply", "And", "Or", "minimum", "maximum", "array_equal", "add", "multiply", "not_equal",
    "logical_and", "logical_or", "logical_xor", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "Minimum", "Maximum",
    "_coincide",
)  # fmt: skip


_SPEAKING = ("vector_length", "check_vector", "_quotient")
"""Functions whose texts stand in messages."""


def faults(node: ast.AST, parents: Sequence[ast.AST]) -> Iterator[Change]:
    """Yield the faults of one node. A change gets a copy of the node and returns its replacement."""
    parent = parents[-1] if parents else None
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                yield lambda node, place=place, other=other: _put(node, "ops", other(), place)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield lambda node: _put(node, "op", _ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield lambda node: node.operand
    elif isinstance(node, ast.BoolOp):
        yield lambda node: _put(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for place in range(len(node.values)):
            yield lambda node, place=place: _without(node, "values", place)
    elif isinstance(node, ast.Constant):
        yield from _constants(node, parents)
    elif isinstance(node, ast.Raise) and getattr(node.exc, "id", "") == "NotImplementedError":
        return  # what a subclass says
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or _is_store(node):
        yield lambda node: ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield lambda node: _put(node, "value", ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield lambda node: _put(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.comprehension):
        for place in range(len(node.ifs)):
            yield lambda node, place=place: _without(node, "ifs", place)
    elif isinstance(node, ast.Call) and not isinstance(parent, ast.Raise):
        plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
        symmetric = getattr(node.func, "attr", getattr(node.func, "id", "")) in _SYMMETRIC
        if not symmetric and len(plain) == len(node.args) >= 2 and ast.dump(node.args[0]) != ast.dump(node.args[1]):
            yield lambda node: _put(node, "args", [node.args[1], node.args[0], *node.args[2:]])


def _put(node: ast.AST, name: str, value: Any, place: int | None = None) -> ast.AST:
    if place is None:
        setattr(node, name, value)
    else:
        getattr(node, name)[place] = value
    return node


def _without(node: ast.AST, name: str, place: int) -> ast.AST:
    items = getattr(node, name)
    del items[place]
    return items[0] if isinstance(node, ast.BoolOp) and len(items) == 1 else node


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_store(node: ast.AST) -> bool:
    """Return whether a node is an assignment whose target existed before."""
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, ast.Assign) and all(isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets)


def _constants(node: ast.Constant, parents: Sequence[ast.AST]) -> Iterator[Change]:
    value, parent = node.value, parents[-1]
    if isinstance(value, bool):
        # ``zip(..., strict=True)`` asserts what always holds.
        if not (isinstance(parent, ast.keyword) and parent.arg == "strict"):
            yield lambda node: _put(node, "value", not node.value)
    elif isinstance(value, int):
        for step in (1, -1):
            yield lambda node, step=step: ast.Constant(node.value + step)
    elif isinstance(value, str) and not _is_words(node, parents):
        lines = any(isinstance(each, ast.keyword) and each.arg in ("onnx", "openvino") for each in parents)
        for other in dict.fromkeys(_lines(value) if lines else [f"{value}_"]):
            yield lambda node, other=other: ast.Constant(other)


def _is_words(node: ast.Constant, parents: Sequence[ast.AST]) -> bool:
    """Return whether a text is for people: a docstring, a message, a reason, part of one."""
    if isinstance(parents[-1], ast.Expr) or any(isinstance(each, ast.JoinedStr) for each in parents):
        return True
    if any(isinstance(each, ast.keyword) and each.arg == "reason" for each in parents):
        return True
    call = next((each for each in reversed(parents) if isinstance(each, ast.Call)), None)
    if call is None or not isinstance(call.func, ast.Name):
        return False
    if call.func.id in _SPEAKING:
        return True
    if not call.func.id.endswith("Error"):
        return False
    return not (call.args and node is call.args[0])


def _lines(line: str) -> Iterator[str]:
    """Yield a slot line with one mark changed."""
    for match in re.finditer(r"=(\d+)\b", line):
        yield f"{line[: match.start(1)]}{int(match[1]) ^ 1}{line[match.end(1) :]}"
    for match in re.finditer(r"=(true|false)\b", line):
        yield f"{line[: match.start(1)]}{'false' if match[1] == 'true' else 'true'}{line[match.end(1) :]}"
    for match in re.finditer(r"~(?:natural|scalar|vector|not|lower)|\?|:_|(?<=[a-z])/\w+|,\d+(?=[,(])|(?<=-)\d+,", line):
        yield line[: match.start()] + line[match.end() :]
    for match in re.finditer(r"\|.*?(?=\))", line):
        yield line[: match.start()].rstrip() + line[match.end() :]


def mutants(module: str, source: str) -> list[Made]:
    """Every mutant of a module, with what makes its whole tree."""
    tree = ast.parse(source)
    found: dict[Mutant, Made] = {}
    for path in _paths(tree, ()):
        nodes = _along(tree, path)
        for change in faults(nodes[-1], nodes[:-1]):
            made = Made(
                *_described(module, tree, path, nodes, change), lambda path=path, change=change: _changed(tree, path, change)
            )
            if made.mutant.original != made.mutant.mutated:
                found.setdefault(made.mutant, made)
    return list(found.values())


Path_ = tuple[tuple[str, int | None], ...]
_SKIPPED = {"annotation", "returns", "decorator_list", "type_params"}


def _paths(node: ast.AST, path: Path_) -> Iterator[Path_]:
    """Yield the way to every node whose change could matter."""
    for name, value in ast.iter_fields(node):
        if (
            name in _SKIPPED
            or isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Assign | ast.AnnAssign) and _is_listing(node))
        ):
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if (
                not isinstance(child, ast.AST)
                or isinstance(child, ast.Import | ast.ImportFrom | ast.Assert)
                or _is_for_types(child)
            ):
                continue
            step = (*path, (name, place))
            yield step
            yield from _paths(child, step)


def _is_listing(node: ast.Assign | ast.AnnAssign) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _along(tree: ast.AST, path: Path_) -> list[ast.AST]:
    nodes = [tree]
    for name, place in path:
        value = getattr(nodes[-1], name)
        nodes.append(value if place is None else value[place])
    return nodes


def _changed(tree: ast.Module, path: Path_, change: Change) -> ast.Module:
    new = copy.deepcopy(tree)
    copies = _along(new, path)
    changed = change(copies[-1])
    name, place = path[-1]
    if changed is not copies[-1]:
        _put(copies[-2], name, changed, place)
    return ast.fix_missing_locations(new)


def _described(module: str, tree: ast.Module, path: Path_, nodes: list[ast.AST], change: Change) -> tuple[Mutant]:
    depth = max(index for index, node in enumerate(nodes) if isinstance(node, ast.stmt) or index == 0)
    # Copied from its statement down: that is all that is shown.
    stub = ast.Module([copy.deepcopy(nodes[depth])], [])
    stated = _header(_changed(stub, (("body", 0), *path[depth:]), change).body[0])
    scopes = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    around = (scopes[0].lineno, scopes[0].end_lineno or 0) if scopes else (0, 0)
    line = next((node.lineno for node in reversed(nodes) if hasattr(node, "lineno")), 0)
    scope = ".".join(node.name for node in scopes)
    return (Mutant(module, line, scope, around, *_ran(nodes), _header(nodes[depth]), stated),)


def _ran(nodes: list[ast.AST]) -> tuple[int, tuple[int, int]]:
    """Return the first line of the function in which the last of the nodes runs (0: at import), and its statement's lines."""
    place = next((index for index in range(len(nodes) - 2, -1, -1) if isinstance(nodes[index], ast.FunctionDef | ast.Lambda)), -1)
    if place < 0:
        return 0, (0, 0)
    function: Any = nodes[place]
    if nodes[place + 1] is function.args:
        return _ran(nodes[: place + 1])  # a default is made when the function is
    first = min(each.lineno for each in (function, *getattr(function, "decorator_list", ())))
    inner: Any = next(node for node in reversed(nodes) if isinstance(node, ast.stmt | ast.ExceptHandler) or node is function)
    if isinstance(inner, ast.If | ast.For | ast.While | ast.With | ast.ExceptHandler | ast.FunctionDef):
        return first, (inner.lineno, max(inner.lineno, inner.body[0].lineno - 1))
    return first, (inner.lineno, inner.end_lineno)


def _header(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text.partition("\n")[0]


# In the child


_CACHED: Any = type(lru_cache(int))


def install(module: types.ModuleType, tree: ast.Module) -> None:
    """Write the mutated module over the imported one: classes and functions stay the objects that everybody holds."""
    from dovetail.formats.onnx.dialect import ONNX
    from dovetail.formats.openvino.dialect import OPENVINO
    from dovetail.ir.op import REGISTRY

    old, registry = dict(module.__dict__), dict(REGISTRY)
    exec(compile(tree, str(module.__file__), "exec"), module.__dict__)
    REGISTRY.clear()
    REGISTRY.update(registry)
    for name, new in list(module.__dict__.items()):
        before = old.get(name)
        if before is new or before is None or name.startswith("__"):
            continue
        if isinstance(before, type) and isinstance(new, type):
            _over_class(before, new)
            module.__dict__[name] = before
        elif isinstance(before, types.FunctionType) and isinstance(new, types.FunctionType) and _over_function(before, new):
            module.__dict__[name] = before
        elif not isinstance(before, int | float | str | bytes):
            _everywhere(before, new)
    for name, each in list(sys.modules.items()):
        for value in list(vars(each).values()) if name.startswith("dovetail.") else ():
            if isinstance(value, _CACHED):
                value.cache_clear()
    if (table := sys.modules.get("dovetail.laws.table")) is not None:
        table._BY_KIND.clear()
    for dialect in (ONNX, OPENVINO):
        dialect._import_mappings.clear()
        dialect._export_mappings.clear()


def _over_function(old: types.FunctionType, new: types.FunctionType) -> bool:
    if len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
        return False
    _over_nested(old.__code__, new.__code__)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    # A decorator such as contextmanager keeps the decorated function in a cell of the function that it returns.
    for before, after in zip(old.__closure__ or (), new.__closure__ or (), strict=True):
        inner, replacement = before.cell_contents, after.cell_contents
        if not isinstance(inner, types.FunctionType) or inner is replacement:
            continue
        if not isinstance(replacement, types.FunctionType) or not _over_function(inner, replacement):
            before.cell_contents = replacement
    return True


def _over_nested(old: types.CodeType, new: types.CodeType) -> None:
    """Replace the code of functions that a function has returned, such as the rules that a table of laws holds."""
    nested = [[item for item in code.co_consts if isinstance(item, types.CodeType)] for code in (old, new)]
    for before, after in zip(*nested, strict=False):
        if before == after:
            continue
        _over_nested(before, after)
        gc.unfreeze()  # Referrers are found among the objects that are not frozen.
        for function in gc.get_referrers(before):
            if isinstance(function, types.FunctionType) and before.co_freevars == after.co_freevars:
                function.__code__ = after


def _over_class(old: type, new: type) -> None:
    for name, value in vars(new).items():
        before = vars(old).get(name)
        if name in ("__dict__", "__weakref__", "__module__", "__qualname__") or isinstance(value, types.MemberDescriptorType):
            continue
        if isinstance(before, types.FunctionType) and isinstance(value, types.FunctionType) and _over_function(before, value):
            continue
        if before is not value:
            setattr(old, name, value)
    for name in set(vars(old)) - set(vars(new)):
        delattr(old, name)


def _everywhere(old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", {})
        for name in [name for name, value in list(space.items()) if value is old]:
            space[name] = new


class Watch:
    """A pytest plugin that notes what became of the test that is running."""

    def __init__(self) -> None:
        self.outcome = "passed"

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"


def run_item(item: Any, watch: Watch) -> str:
    watch.outcome = "passed"
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return watch.outcome


def _quiet(config: Any, limit: int) -> None:
    """Silence a child, and give it a folder for temporary files and a limit of processor time."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1), os.dup2(sink, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        factory._basetemp = None
        factory._given_basetemp = Path(f"/tmp/mutation.{os.getpid()}")


def forked(work: Callable[[], Any], config: Any, limit: float) -> tuple[int, int]:
    """``work`` in a child that ends after ``limit`` seconds of processor time: its process id, and the pipe in which its pickled
    answer comes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        os.close(reader)
        os.setsid()
        _quiet(config, int(limit))
        try:
            answer = work()
        except BaseException as error:
            answer = error if isinstance(error, MemoryError | RecursionError) else f"{type(error).__name__}: {error}"
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(answer, stream)
    finally:
        os._exit(0)


# Running


def _is_offline(item: Any) -> bool:
    """Return whether a test asks a foreign runtime nothing, or only through ``oracles``, whose answers ``answers`` keeps."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return code is None or not {"openvino", "onnxruntime", "torch", "jax"} & {*code.co_names, *code.co_varnames}


def measure(items: list[Any], files: dict[str, str], watch: Watch) -> Any:
    """Run all tests once, and note which lines each runs, and what the oracles say."""

    import answers

    def work() -> Any:
        rows = []
        said: answers.Answers = {}
        answers.note_answers(said)
        for number, item in enumerate(items):
            seen: set[tuple[str, int]] = set()

            def trace(frame: Any, event: str, argument: Any, seen: set[tuple[str, int]] = seen) -> Any:
                module = files.get(frame.f_code.co_filename)
                if module is None:
                    return None

                def line(frame: Any, event: str, argument: Any) -> Any:
                    seen.add((module, frame.f_lineno))
                    return line

                seen.add((module, frame.f_code.co_firstlineno))
                return line

            start = time.process_time()
            sys.settrace(trace)
            try:
                outcome = run_item(item, watch)
            finally:
                sys.settrace(None)
            rows.append((number, outcome, time.process_time() - start, frozenset(seen)))
        return rows, said

    return work


class Runner:
    """The plugin that takes the place of pytest's own loop."""

    def __init__(self, chosen: list[Made], jobs: int, most: float, say: Callable[[str], None]) -> None:
        self.chosen = chosen
        self.most = most
        self.jobs = jobs
        self.say = say
        self.watch = Watch()
        self.survivors: list[Mutant] = []
        self.killed: dict[str, int] = {}
        self.killed_in: dict[str, int] = {}
        self.seconds = 0.0
        self.untested: list[str] = []

    def pytest_runtestloop(self, session: Any) -> bool:
        import answers

        session.config.pluginmanager.register(self.watch)
        items = [item for item in session.items if _is_offline(item)]
        files = {str(PACKAGE / each.mutant.module): each.mutant.module for each in self.chosen}
        measured = _wait(*forked(measure(items, files, self.watch), session.config, 3600))
        if not isinstance(measured, tuple):
            raise SystemExit(f"the tests do not run: {measured}")
        rows, said = measured
        answers.give_answers(said)
        known = {number: (seconds, seen) for number, outcome, seconds, seen in rows if outcome == "passed"}
        self.untested = [items[number].nodeid for number, outcome, _, _ in rows if outcome == "failed"]
        for module in dict.fromkeys(files.values()):
            tree = ast.parse((PACKAGE / module).read_text())
            fault = _wait(*forked(partial(self._installed, module, tree), session.config, 60))
            if fault is not None:
                raise SystemExit(f"{module} cannot be written over itself: {fault}")
        self.say(f"{len(known)} tests pass in {sum(seconds for seconds, _ in known.values()):.0f} s; {len(self.chosen)} mutants")
        self._all(items, known, session.config)
        return True

    def _all(self, items: list[Any], known: dict[int, tuple[float, frozenset[tuple[str, int]]]], config: Any) -> None:
        start = time.perf_counter()
        waiting = list(reversed(self.chosen))
        running: dict[int, tuple[int, Mutant, float, bytes]] = {}
        killers: dict[tuple[str, str], list[int]] = {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                made = waiting.pop()
                mutant = made.mutant
                numbers = self._tests(mutant, items, known, killers.get((mutant.module, mutant.scope), []))
                limit = 10 + 5 * sum(known[number][0] for number in numbers)
                child, reader = forked(self._work(made, [(number, items[number]) for number in numbers]), config, limit)
                running[reader] = (child, mutant, time.perf_counter() + WAITS * limit, b"")
            ready, _, _ = select.select(list(running), [], [], 0.5)
            for reader in list(running):
                child, mutant, deadline, data = running[reader]
                late = time.perf_counter() > deadline
                if reader in ready:
                    piece = os.read(reader, 1 << 16)
                    running[reader] = (child, mutant, deadline, data + piece)
                    if piece:
                        continue
                elif not late:
                    continue
                del running[reader]
                os.close(reader)
                _end(child)
                self._note(mutant, data, killers)
        self.seconds = time.perf_counter() - start

    def _tests(self, mutant: Mutant, items: list[Any], known: dict[int, Any], first: list[int]) -> list[int]:
        """Return the tests that reach the mutant: those that killed others of its function, then the quickest of each test
        function, so that all functions get the same time.
        """
        lines = {(mutant.module, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
        reach = [number for number, (_, seen) in known.items() if not seen.isdisjoint(lines)]
        if not any((mutant.module, mutant.first) in seen for _, seen in known.values()):
            # What is only called while modules are imported: the tests that reach or name what it is part of may see it.
            name = mutant.scope.partition(".")[0]
            inside = {(mutant.module, line) for line in range(mutant.around[0], mutant.around[1] + 1)}
            named = {number for number in known if name and name.casefold() in items[number].nodeid.casefold()}
            reach = [number for number, (_, seen) in known.items() if number in named or not seen.isdisjoint(inside)]
            if not reach:
                words = _fitting(mutant.module)
                reach = [each for each in known if words(items[each])]
        reach.sort(key=lambda number: known[number][0])
        turn: defaultdict[Any, float] = defaultdict(float)
        turns: dict[int, float] = {}
        for number in reach:
            function = getattr(items[number], "function", None)
            turn[function] += known[number][0]
            turns[number] = -1 if number in first else turn[function]
        reach.sort(key=turns.__getitem__)
        spent = accumulate(known[number][0] for number in reach)
        return [number for number, seconds in zip(reach, spent, strict=True) if not self.most or seconds <= self.most]

    def _work(self, made: Made, chosen: list[tuple[int, Any]]) -> Callable[[], Any]:
        def work() -> Any:
            fault = self._installed(made.mutant.module, made.tree())
            if fault is not None:
                return f"import: {fault}"
            for number, item in chosen:
                if run_item(item, self.watch) == "failed":
                    return number
            return None

        return work

    def _installed(self, module: str, tree: ast.Module) -> str | None:
        try:
            install(importlib.import_module(f"dovetail.{module.removesuffix('.py').replace('/', '.')}"), tree)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _note(self, mutant: Mutant, data: bytes, killers: dict[tuple[str, str], list[int]]) -> None:
        try:
            answer = pickle.loads(data) if data else "time or memory"
        except Exception:
            answer = "no answer"
        if answer is None:
            self.survivors.append(mutant)
            self.say(str(mutant))
            return
        how = "test" if isinstance(answer, int) else str(answer).partition(":")[0]
        self.killed[how] = self.killed.get(how, 0) + 1
        self.killed_in[mutant.module] = self.killed_in.get(mutant.module, 0) + 1
        if isinstance(answer, int):
            row = killers.setdefault((mutant.module, mutant.scope), [])
            if answer in row:
                row.remove(answer)
            row.insert(0, answer)
            del row[8:]


def _fitting(module: str) -> Callable[[Any], bool]:
    """Return a predicate of the tests of a module, by the expression in TESTS."""
    files, words = tests_of(module)
    texts = [word.strip() for word in words.split(" or ")]
    return lambda item: any(item.nodeid.startswith(name) for name in files) and any(text in item.nodeid for text in texts)


def _wait(child: int, reader: int) -> Any:
    data = b""
    while piece := os.read(reader, 1 << 16):
        data += piece
    os.close(reader)
    _end(child)
    return pickle.loads(data) if data else "no answer"


def _end(child: int) -> None:
    import shutil

    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    shutil.rmtree(f"/tmp/mutation.{child}", ignore_errors=True)


# The command


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Return the mutants that mean the same, with the reason. Raises ValueError for an entry without one."""
    if not EQUIVALENT.exists():
        return {}
    found = {}
    for entry in tomllib.loads(EQUIVALENT.read_text()).get("mutant", []):
        if set(entry) != {"module", "scope", "original", "mutated", "reason"} or not entry["reason"].strip():
            raise ValueError(f"mutants_equivalent.toml: module, scope, original, mutated and reason are needed, not {entry}")
        found[entry["module"], entry["scope"], entry["original"], entry["mutated"]] = entry["reason"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--paths",
        nargs="+",
        type=Path,
        help="modules or folders of src/dovetail; all of ops and formats/op_mapping.py when left out",
    )
    parser.add_argument("--lines", help="only mutants on these lines, FIRST-LAST")
    parser.add_argument("--scope", help="only mutants in this function or class")
    parser.add_argument("--every", type=int, default=1, help="only every Nth of them")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0,
        help="run no more tests for one mutant than take this number of seconds of processor time",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    options = parser.parse_args(arguments)
    given = options.paths or [PACKAGE / "ops", PACKAGE / "formats/op_mapping.py"]
    paths = [found.resolve() for path in given for found in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    modules = [str(path.relative_to(PACKAGE)) for path in paths if path.name != "__init__.py"]
    low, _, high = (options.lines or "0-1000000000").partition("-")
    everything = [made for module in modules for made in mutants(module, (PACKAGE / module).read_text())]
    same = equivalents()
    stale = [key for key in same if key[0] in modules and key not in {made.mutant.key for made in everything}]
    wanted = [
        made
        for made in everything
        if int(low) <= made.mutant.line <= int(high or low)
        and (not options.scope or f"{made.mutant.scope}.".startswith(f"{options.scope}."))
    ][:: options.every]
    equal = [made.mutant for made in wanted if made.mutant.key in same]
    chosen = [made for made in wanted if made.mutant.key not in same]
    if options.list:
        print("\n".join(str(made.mutant) for made in chosen))
        return 0
    return _report(_run(modules, chosen, options), equal, stale, options)


def _run(modules: list[str], chosen: list[Made], options: Any) -> Runner:
    import pytest

    import case_laws

    files, words = [], []
    for module in modules:
        names, expression = tests_of(module)
        files += names
        words.append(expression)
    out = os.fdopen(os.dup(1), "w")

    def say(text: str) -> None:
        print(text, file=sys.stderr if options.json else out, flush=True)

    runner = Runner(chosen, options.jobs, options.seconds, say)
    os.chdir(ROOT)
    # These libraries have threads, which do not survive a fork.
    case_laws.excluded |= {"check_torch", "check_jax"}
    silent = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--no-header", "--no-summary", "-q", "-q", "--capture=no"]
    code = pytest.main([*silent, "-k", " or ".join(f"({each})" for each in words), *dict.fromkeys(files)], plugins=[runner])
    if code not in (0, 1, 5):
        raise SystemExit(f"pytest ended with {code}")
    return runner


def _report(runner: Runner, equal: list[Mutant], stale: list[tuple[str, ...]], options: Any) -> int:
    lost = [mutant for mutant in runner.survivors if mutant.is_complete]
    figures = {
        "mutants": len(runner.chosen) + len(equal),
        "killed": sum(runner.killed.values()),
        "killed_by": runner.killed,
        "equivalent": len(equal),
        "survivors": len(runner.survivors),
        "survivors_in_complete_code": len(lost),
        "seconds": round(runner.seconds),
    }
    modules = {
        module: {
            "mutants": count + sum(mutant.module == module for mutant in equal),
            "killed": runner.killed_in.get(module, 0),
            "equivalent": sum(mutant.module == module for mutant in equal),
            "survivors": sum(mutant.module == module for mutant in runner.survivors),
        }
        for module, count in Counter(made.mutant.module for made in runner.chosen).items()
    }
    if options.json:
        listed = [
            {"file": f"src/dovetail/{m.module}", "line": m.line, "scope": m.scope, "original": m.original, "mutated": m.mutated}
            for m in runner.survivors
        ]
        print(
            json.dumps(
                {
                    **figures,
                    "modules": modules,
                    "survived": listed,
                    "failing_unharmed": runner.untested,
                    "stale_equivalents": stale,
                },
                indent=1,
            )
        )
    else:
        for name in runner.untested:
            print(f"fails unharmed: {name}")
        for key in stale:
            print(f"mutants_equivalent.toml: no such mutant: {key}")
        for module, counts in modules.items() if len(modules) > 1 else ():
            print(f"{module}: {_written(counts)}")
        print(_written(figures))
    return 1 if lost or stale else 0


def _written(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
