"""The files that mutations begin with: small ONNX models and the IR and text that the project writes for them."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

SMALL = 6_000
"""Bytes beyond which a model is no seed: mutations would hit its weights alone."""


SIDES = {".xml": ".bin", ".dt": ".safetensors"}
"""The side file of each format that has one."""


class File(NamedTuple):
    """One input: its suffix, the model file, and the side file of an IR or a text."""

    suffix: str
    data: bytes
    weights: bytes = b""

    @property
    def size(self) -> int:
        return len(self.data) + len(self.weights)

    def write(self, folder: Path) -> Path:
        """Write the file into ``folder``; return its path."""
        path = folder / f"model{self.suffix}"
        path.write_bytes(self.data)
        if side := SIDES.get(self.suffix):
            path.with_suffix(side).write_bytes(self.weights)
        return path


class Corpus(NamedTuple):
    """Seeds by name, and the names of operators in each format."""

    onnx: list[tuple[str, File]]
    ir: list[tuple[str, File]]
    text: list[tuple[str, File]]
    onnx_kinds: tuple[str, ...]
    ir_kinds: tuple[str, ...]
    text_kinds: tuple[str, ...]


def make_corpus() -> Corpus:
    """Make the seeds: onnx's node tests, a case of each operator of ours, and hostile models; then their IR."""
    import dovetail
    from dovetail.errors import DovetailError

    found = {name: File(".onnx", data) for name, data in _onnx_models() if len(data) <= SMALL}
    written: dict[str, File] = {}
    texts: dict[str, File] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = folder / "written.xml"
        for seed, file in found.items():
            with contextlib.suppress(DovetailError):
                texts[seed] = text_of(dovetail.load(file.write(folder)), folder)
                dovetail.save(dovetail.load(file.write(folder)), target)
                written[seed] = File(".xml", target.read_bytes(), _without_trailer(target.with_suffix(".bin")))
    onnx_kinds = {node.op_type for file in found.values() for node in onnx.ModelProto.FromString(file.data).graph.node}
    ir_kinds = {kind.decode() for file in written.values() for kind in re.findall(rb'<layer [^>]*type="([^"]*)"', file.data)}
    text_kinds = {kind for file in texts.values() for kind in re.findall(r"= ([A-Z]\w*)\(", file.data.decode())}
    kinds = [tuple(sorted(names)) for names in (onnx_kinds, ir_kinds, text_kinds)]
    return Corpus(list(found.items()), list(written.items()), list(texts.items()), *kinds)


def text_of(model: Any, folder: Path) -> File:
    """Write a model as text; its weights file has no digests, which no mutated text would match."""
    import dovetail

    target = folder / "model.dt"
    side = target.with_suffix(SIDES[".dt"])
    side.unlink(missing_ok=True)
    dovetail.save(model, target)
    weights = side.read_bytes().replace(b'{"dovetail":"', b'{"others__":"') if side.exists() else b""
    return File(".dt", target.read_bytes(), weights)


def _without_trailer(path: Path) -> bytes:
    """Return a side file without its digests, which no mutated model file would match."""
    from dovetail.storage.weights_file import MAGIC, TRAILER

    data = path.read_bytes() if path.exists() else b""
    return data[:-TRAILER] if data[-TRAILER:].startswith(MAGIC) else data


def _onnx_models() -> Iterator[tuple[str, bytes]]:
    import hostile_models as hostile
    from backend_data import samples

    for sample in samples("node"):
        yield sample.name, sample.read_model().SerializeToString()
    yield from _cases()
    models = {
        "relus": hostile.relus(5),
        "if in if": hostile.if_nest(3),
        "loop in loop": hostile.loop_nest(3),
        "loop": hostile.loop(5),
        "loop that collects": hostile.loop(5, True),
        "while": hostile.loop(5, goes_on=False),
        "functions": hostile.function_bomb(2, 3),
        "texts": hostile.string_doubling(3),
        "pattern": hostile.regex("(a|b)*c", "abc"),
        "concat": hostile.concat_many(20),
        "split": hostile.split_many(20),
        "inputs": hostile.many_inputs(5),
        "products of sums": hostile.swell(3),
        "squares": hostile.square(3),
        "constants": hostile.square(3, True),
    }
    for name, model in models.items():
        yield f"hostile: {name}", model.SerializeToString()


def _cases() -> Iterator[tuple[str, bytes]]:
    """Yield the first case of each operator that ONNX can say."""
    import dovetail
    from case_runner import model_of
    from cases import all_cases
    from dovetail.errors import DovetailError

    seen: set[type] = set()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "case.onnx"
        for family, case in all_cases():
            if type(case.op) in seen:
                continue
            with contextlib.suppress(DovetailError):
                dovetail.save(model_of(case), target)
                seen.add(type(case.op))
                yield f"{family}: {type(case.op).__name__}", target.read_bytes()
