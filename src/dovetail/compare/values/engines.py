"""Runs of parts of a model in an engine."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dovetail.compare.values.subject import Part
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.formats import save
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.runtime.compilation import compile
from dovetail.runtime.find_shapes import refuse_live_memory
from dovetail.runtime.peers import Names, Runner, is_installed, runner
from dovetail.runtime.releases.environment import python_of
from dovetail.runtime.releases.release import Release, release_of
from dovetail.runtime.releases.workers import run_release

ENGINES = ("interpreter", "native", "onnxruntime", "openvino")
PEERS = ("onnxruntime", "openvino")


def check_engines(names: Sequence[str], *, releases: bool = True) -> None:
    """Raise EngineError [argument.value], UnsupportedError [runtime.missing] for engines that cannot run here.

    The environment of a release, such as onnxruntime==1.20.1, is made if the cache folder has none. ``releases`` False
    refuses releases.
    """
    for name in names:
        release = release_of(name) if releases else None
        if release is not None:
            python_of(release)
            continue
        if name not in ENGINES:
            raise EngineError("argument.value", f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
        if name in PEERS and not is_installed(name):
            raise UnsupportedError("runtime.missing", f"{name} is not installed")


def installed_engines() -> list[str]:
    """Return all engines that can run here."""
    return [name for name in ENGINES if name not in PEERS or is_installed(name)]


def warm_up(names: Iterable[str], folder: str) -> None:
    """Run a small model in each engine, so that its libraries are loaded before slices divide the remaining memory."""
    b = Builder("warm-up")
    b.output("y", b.Relu(b.input("x", "f32", [1])))
    part = Part(b.model, {"x": np.ones(1, np.float32)}, list(b.model.outputs))
    for name in dict.fromkeys(names):
        # An engine that fails here fails again in the comparison, in a row that states the reason.
        with suppress(DovetailError):
            run_part(name, part, folder)


def release_memory() -> None:
    """Return freed memory, which glibc would keep, to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def run_part(engine: str, part: Part, folder: str, threads: int | None = None, precision: str | None = None) -> list[Any]:
    """Run a part in an engine. Returns its outputs in order; one value may be several outputs.

    onnxruntime and OpenVINO run the part as a file: OpenVINO runs an IR file if the model is IR, else both run ONNX from memory.
    A release, such as onnxruntime==1.20.1, runs a file with its default options in a process of its own.
    ``precision``: see :func:`dovetail.compile`; the interpreter and onnxruntime do not round.
    Raises only DovetailErrors; a failure of a peer is EngineError [runtime.load], [runtime.run]; of a release also
    [runtime.crash], [runtime.timeout].
    """
    distinct = dict.fromkeys(map(id, part.outputs))
    release = release_of(engine)
    if release is not None:
        arrays = _run_release(release, part, folder, threads)
    else:
        run = _run_peer if engine in PEERS else _run_program
        arrays = run(engine, part, folder, threads, precision)
    if len(arrays) != len(distinct):
        raise EngineError("runtime.run", f"{engine} must return the {len(distinct)} outputs of a part, got {len(arrays)}")
    by_value = dict(zip(distinct, arrays, strict=True))
    return [by_value[id(value)] for value in part.outputs]


def _run_program(engine: str, part: Part, folder: str, threads: int | None, precision: str | None) -> list[Any]:
    options: dict[str, Any] = {"threads": threads, "precision": precision} if engine == "native" else {}
    with compile(part.model, engine=engine, **options) as program:
        return list(program(part.inputs).values())


def _run_release(release: Release, part: Part, folder: str, threads: int | None) -> list[Any]:
    refuse_live_memory(part.model, [part.inputs[x.name] for x in part.model.inputs])
    is_ir = release.package == "openvino" and part.model.format == "openvino"
    path = os.path.join(folder, "part.xml" if is_ir else "part.onnx")
    save(part.model, path)
    try:
        return run_release(release, path, {x.name: part.inputs[x.name] for x in part.model.inputs}, threads)
    finally:
        _remove_part(folder)


def _remove_part(folder: str) -> None:
    for suffix in (".xml", ".bin", ".onnx"):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f"part{suffix}"))


def _run_peer(engine: str, part: Part, folder: str, threads: int | None, precision: str | None) -> list[Any]:
    refuse_live_memory(part.model, [part.inputs[x.name] for x in part.model.inputs])
    is_ir = engine == "openvino" and part.model.format == "openvino"
    try:
        loaded = peer_runner(engine, part.model, folder if is_ir else None, threads, exact=True, precision=precision)
        found = loaded.run(part.inputs)
    except DovetailError:
        raise
    except Exception as error:
        # A peer raises errors of its own classes.
        raise EngineError("runtime.run", f"{engine} cannot run the model: {' '.join(str(error).split())[:500]}") from error
    finally:
        if is_ir:
            _remove_part(folder)
    return list(found.values())


def peer_runner(
    engine: str,
    model: Model,
    folder: str | None = None,
    threads: int | None = None,
    *,
    exact: bool = False,
    precision: str | None = None,
) -> Runner:
    """Load a model in onnxruntime or OpenVINO: as ONNX from memory, or with a ``folder`` as an IR file in it.

    ``exact`` and ``precision``: see :func:`runner`. Raises the errors of :func:`save`, EngineError [runtime.load].
    """
    names = Names([x.name for x in model.inputs], [y.name for y in model.outputs])
    source: str | bytes
    if folder is not None:
        source = os.path.join(folder, "part.xml")
        save(model, source)
    else:
        stream = io.BytesIO()
        save(model, stream)
        source = stream.getvalue()
        del stream
    return runner(engine, source, threads, names, exact=exact, precision=precision)
