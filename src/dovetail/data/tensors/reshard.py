"""dovetail.reshard: applies a graph of movement operators to tensors in files, and writes files, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

import numpy as np

from dovetail.data.tensors.blocks import Composition, TensorBlocks, compose_blocks, whole_tensor
from dovetail.data.tensors.copy_run import CopyRun
from dovetail.data.tensors.copy_tasks import Budget
from dovetail.data.tensors.output_files import OutputFile, index_of, nbytes_of, parse_size, plan_files, safetensors_file
from dovetail.data.tensors.recipe import INPUT_PREFIX, OUTPUT_PREFIX, graph_of, read_recipe
from dovetail.data.tensors.tensor_sets import INDEX, StoredTensor, TensorSet, describe_set, is_tensor_path, open_tensors
from dovetail.errors import EngineError, UnsupportedError
from dovetail.formats import load
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.inputs_outputs import check_inputs
from dovetail.ir.limits import counting, machine_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor, is_static
from dovetail.laws.fold import fold
from dovetail.storage.atomic_write import lock_file, replace_file
from dovetail.storage.files import StrPath

STATE = ".reshard.json"
"""The file in the output folder that identifies an unfinished run."""
UNCACHED_SHARE = 4
"""Output pages are dropped from the page cache if the outputs exceed the machine's memory divided by this number."""
_RESERVE = 48 << 20
# Bytes that Python objects and temporaries of a run may need in addition to the buffers.
_MAX_BUFFER = 64 << 20
_MIN_BUFFER = 64 << 10


@dataclass(frozen=True)
class ReshardReport:
    """ReshardReport is the result of a run. ``files`` are the names of all files; ``kept`` of these were already complete.

    ``unused`` are the input tensors that are not in the output; ``written`` is the number of bytes that this run wrote.
    """

    files: tuple[str, ...]
    kept: tuple[str, ...]
    tensors: int
    unused: tuple[str, ...]
    nbytes: int
    written: int
    seconds: float

    def to_text(self) -> str:
        rate = self.written / max(self.seconds, 1e-9) / 1e9
        lines = [f"{self.tensors} tensors in {len(self.files)} files, {self.nbytes / 1e9:.3f} GB; {rate:.2f} GB/s"]
        if self.kept:
            lines.append(f"{len(self.kept)} files were already complete")
        if self.unused:
            names = ", ".join(self.unused[:4]) + (" ..." if len(self.unused) > 4 else "")
            lines.append(f"{len(self.unused)} tensors of the input are not in the output: {names}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_tensor_job(model: StrPath, input: StrPath) -> bool:
    """Return whether the command must use ``reshard`` instead of ``map``: for a recipe, or an input of safetensors files."""
    return os.fspath(model).endswith(".toml") or is_tensor_path(input)


@check_keywords
def reshard(
    model: Model | Mapping[str, Any] | StrPath,
    input: StrPath,
    output: StrPath,
    *,
    shards: int | str | None = None,
    memory: int | str = "500MB",
    keep: str | Sequence[str] = (),
    threads: int | None = None,
    restart: bool = False,
) -> ReshardReport:
    """Apply a graph of movement operators to the tensors in files, and write the outputs to files in bounded memory.

    ``model``: a Model or a model file of operators with windows (Concat, Split, Reshape, Transpose, Slice, Pad, ...) and Cast.
    Names of graph inputs and outputs are names of tensors; the prefixes ``input:`` and ``output:`` distinguish equal names.
    ``model`` may also be a recipe (a mapping or a .toml file, see :mod:`dovetail.data.tensors.recipe`), whose graph is built for
    the input.

    ``input``: a .safetensors or .npy file, or a folder of such files. If several files hold the same names, inputs are named
    ``NAME@RANK``. ``output``: a folder, or the path of one .safetensors file. If all outputs are named ``NAME@RANK``, each rank
    becomes a file; otherwise ``shards`` is the number of files, or their maximum size (``"5GB"``). ``keep``: shell patterns of
    input tensors that are copied unchanged. ``memory`` bounds the memory of the process, including buffers.

    A file gets its name when it is complete. The same call continues an interrupted run; ``restart`` writes all files again.

    Raises UnsupportedError [reshard.operator]; RuleError [reshard.recipe], [reshard.tensor], [dtype.*], [argument.*]; EngineError
    [dataset.*], [folder.*], [input.*], [name.*], [path.*]; FormatError [array.file]; and the errors of :func:`load`.

    >>> with dovetail.Builder() as b: y = b.output("output:w", b.Transpose(b.input("input:w", "f64", (2, 3)), [1, 0]))
    >>> np.save("w.npy", np.zeros((2, 3)))
    >>> dovetail.reshard(b.model, "w.npy", "transposed").files
    ('w.npy',)
    """
    begin = time.monotonic()
    budget_bytes = parse_size(memory, "memory")
    recipe = None
    if isinstance(model, Mapping) or (not isinstance(model, Model) and os.fspath(model).endswith(".toml")):
        recipe = read_recipe(model)
    elif not isinstance(model, Model):
        model = load(model)
    with open_tensors(input) as tensors:
        if not isinstance(model, Model):
            assert recipe is not None
            model = graph_of(recipe, tensors)
        graph = specialize(model, tensors)
        with counting(model.limits):
            composition = compose_blocks(graph, {value.name: tensors.tensors[_stored_name(value)] for value in graph.inputs})
        for y in composition.outputs:
            y.name = y.name.removeprefix(OUTPUT_PREFIX)
        outputs = [*composition.outputs, *_kept_tensors(keep, tensors, composition)]
        folder, files = _plan(outputs, tensors, os.fspath(output), shards)
        _refuse_inputs(folder, files, tensors)
        workers = threads or min(os.cpu_count() or 1, 4)
        digest = _digest(files, composition, tensors)
        names = [file.name for file in files]
        if os.path.abspath(os.fspath(output)) not in [os.path.join(folder, name) for name in names]:
            # In a folder, readers read the files that the index names, which may be those of an earlier run.
            names.append(INDEX)
        with _lock_output(folder, names, digest, restart=restart) as complete:
            pending = [file for file in files if file.name not in complete]
            _refuse_full_disk(folder, pending, composition)
            # Files of this size would evict the pages of all other processes from the page cache.
            is_uncached = sum(file.size for file in pending) > machine_memory() // UNCACHED_SHARE
            with CopyRun(folder, _budget(budget_bytes, workers), workers, tensors.files, is_uncached) as run:
                if pending:
                    for scratch, blocks in composition.scratch:
                        run.write_scratch(scratch, blocks)
                run.write_files(pending)
            if len(files) > 1 and files[0].name.startswith("model-"):
                with replace_file(os.path.join(folder, INDEX)) as stream:
                    stream.write(index_of(files))
        used = {_stored_name(value) for value in graph.inputs} | {tensor.name for tensor in outputs[len(composition.outputs) :]}
        return ReshardReport(
            tuple(file.name for file in files),
            tuple(file.name for file in files if file.name in complete),
            len(outputs),
            tuple(name for name in tensors.tensors if name not in used),
            sum(map(nbytes_of, outputs)),
            run.written,
            time.monotonic() - begin,
        )


def specialize(model: Model, tensors: TensorSet) -> Graph:
    """Return the model's graph with the input types of the stored tensors, after type inference and constant folding.

    Raises EngineError [reshard.tensor] for inputs that are not in the set, [input.dtype], [input.shape]; and UnsupportedError
    [type.unknown] for an output whose shape depends on elements.
    """
    missing = [_stored_name(value) for value in model.inputs if _stored_name(value) not in tensors.tensors]
    if missing:
        names = ", ".join(map(repr, missing[:8])) + (" ..." if len(missing) > 8 else "")
        kind = f"; {tensors.ranks} files hold the same names, so that tensors are named NAME@RANK" if tensors.ranks else ""
        raise EngineError("reshard.tensor", f"the files have no tensor {names}{kind}", file=tensors.path)
    stored = [tensors.tensors[_stored_name(value)] for value in model.inputs]
    for value, tensor in zip(model.inputs, stored, strict=True):
        if isinstance(value.type, Tensor) and value.type.dtype not in (None, tensor.dtype):
            raise EngineError("input.dtype", f"input {value.name!r} must be {value.type.dtype}, got {tensor.dtype}")
    check_inputs(model, stored)
    graph = copy_graph(model.graph)
    for value, tensor in zip(graph.inputs, stored, strict=True):
        value.type = Tensor(tensor.dtype, tensor.shape)
    with counting(model.limits):
        infer_graph(graph, file=model.file)
        fold(graph)
    unknown = [y.name for y in graph.outputs if not is_static(y.type) or not isinstance(y.type, Tensor)]
    if unknown:
        raise UnsupportedError("type.unknown", f"the shape of {unknown[0]!r} depends on the elements of tensors")
    return graph


def _stored_name(value: Value) -> str:
    return value.name.removeprefix(INPUT_PREFIX)


def _kept_tensors(keep: str | Sequence[str], tensors: TensorSet, composition: Composition) -> list[TensorBlocks]:
    patterns = [keep] if isinstance(keep, str) else list(keep)
    taken = {y.name for y in composition.outputs}
    return [
        TensorBlocks(name, tensor.dtype, tensor.shape, whole_tensor(tensor, tensor.shape))
        for name, tensor in tensors.tensors.items()
        if name not in taken and any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _plan(
    outputs: Sequence[TensorBlocks], tensors: TensorSet, output: str, shards: int | str | None
) -> tuple[str, list[OutputFile]]:
    """Return the folder and the files to write."""
    if output.endswith(".safetensors") and not os.path.isdir(output):
        if shards not in (None, 1):
            raise EngineError("argument.conflict", f"output must be a folder for several files, got the file {output!r}")
        rows = [(tensor.name, tensor) for tensor in outputs]
        folder, name = os.path.split(os.path.abspath(output))
        return folder, [safetensors_file(name, rows, tensors.metadata)]
    files = plan_files(
        outputs,
        format=tensors.format,
        metadata=tensors.metadata,
        template=os.path.basename(tensors.files[0].path) if tensors.ranks else None,
        shards=None if isinstance(shards, str) else shards,
        max_shard_size=parse_size(shards, "the size of a file") if isinstance(shards, str) else None,
    )
    return os.path.abspath(output), files


def _refuse_inputs(folder: str, files: Sequence[OutputFile], tensors: TensorSet) -> None:
    """Raise EngineError [folder.occupied] if a file is both read and written, or input and output are the same folder."""
    read = {os.path.realpath(file.path) for file in tensors.files}
    written = {os.path.realpath(os.path.join(folder, file.name)) for file in files}
    is_same = os.path.isdir(tensors.path) and os.path.realpath(tensors.path) == os.path.realpath(folder)
    if read & written or is_same:
        raise EngineError("folder.occupied", f"the output folder must differ from the input {tensors.path!r}")


def _refuse_full_disk(folder: str, files: Sequence[OutputFile], composition: Composition) -> None:
    needed = sum(file.size for file in files) + sum(nbytes_of(blocks) for _, blocks in composition.scratch)
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise EngineError("folder.unwritable", f"the files need {needed} bytes, but the disk has {free} bytes free", file=folder)


def _budget(memory: int, threads: int) -> Budget:
    """Return the buffer sizes of each worker, chosen so that the process stays below ``memory`` bytes if possible."""
    free = max(memory - _resident_bytes() - _RESERVE, memory // 4)
    size = max(min(free // threads // 2, _MAX_BUFFER), _MIN_BUFFER)
    return Budget(size, size)


def _resident_bytes() -> int:
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 100 << 20


def _digest(files: Sequence[OutputFile], composition: Composition, tensors: TensorSet) -> str:
    """Return a digest of all blocks of all output files, and of the names, sizes and times of the input files."""
    digest = hashlib.sha256(json.dumps(describe_set(tensors)).encode())
    for scratch, blocks in composition.scratch:
        digest.update(f"scratch {scratch.name}".encode())
        _add_blocks(digest, blocks)
    for file in files:
        digest.update(file.name.encode() + file.header)
        for tensor, offset in file.tensors:
            digest.update(f"{tensor.name} {offset}".encode())
            _add_blocks(digest, tensor)
    return digest.hexdigest()


def _add_blocks(digest: Any, tensor: TensorBlocks) -> None:
    for block in tensor.blocks:
        source = block.source
        if isinstance(source, np.ndarray):
            digest.update(source.reshape(-1).view(np.uint8))
        else:
            file = os.path.basename(source.file.path) if isinstance(source, StoredTensor) else ""
            digest.update(f"{file} {source.name}".encode())
        digest.update(repr(block[1:]).encode())


@contextmanager
def _lock_output(folder: str, names: Sequence[str], digest: str, *, restart: bool) -> Iterator[set[str]]:
    """Lock the state file of a run; yield those of the files ``names`` that an interrupted run with the same digest completed.

    Raises EngineError [folder.locked], [folder.occupied], [folder.resume].
    """
    path = os.path.join(folder, STATE)
    with _lock_state_file(path, folder) as stream:
        stream.seek(0)
        state = stream.read().decode(errors="replace")
        existing = {name for name in names if os.path.lexists(os.path.join(folder, name))}
        if not restart and state and state != digest:
            message = "the folder has an interrupted run of a different model, input or option; restart overwrites it"
            raise EngineError("folder.resume", message, file=folder)
        if not restart and not state and existing:
            os.unlink(path)
            raise EngineError("folder.occupied", f"{min(existing)!r} exists already; restart overwrites it", file=folder)
        if restart:
            # Files of an earlier run are removed before the new digest is written, or they would count as files of this run.
            for name in existing:
                os.unlink(os.path.join(folder, name))
            existing = set()
        if restart or not state:
            stream.truncate(0)
            stream.write(digest.encode())
            stream.flush()
            os.fsync(stream.fileno())
        yield existing
        os.unlink(path)


def _lock_state_file(path: str, folder: str) -> BinaryIO:
    """Open and lock the state file of a run. Raises EngineError [folder.locked], [folder.unwritable]."""
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            stream = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise EngineError(
                "folder.unwritable", f"the output folder {folder!r} cannot be written: {error.strerror}", file=folder
            ) from None
        is_locked = lock_file(stream.fileno())
        # A run that ends may have removed the file between its opening and its locking.
        if is_locked and os.fstat(stream.fileno()).st_nlink:
            return stream
        stream.close()
        if not is_locked:
            raise EngineError("folder.locked", f"another run is writing into {folder!r}", file=folder)
