"""A model file and its weights file: proof that one save wrote both, so that a read never mixes two saves.

The signature of a weights file has the digest of its content and the digest of the model file: in a trailer, or in the header of
a safetensors file. The model file contains the first digest: ONNX in the metadata property ``dovetail.external_data``, IR in
``rt_info`` under ``dovetail/weights``. Digests are the first 24 bytes of SHA-256 (of the weights: of the SHA-256 of their
blocks), so that equal models give equal bytes. A read compares the digests and hashes nothing. A weights file without a
signature (of another tool) is accepted.

ONNX's own ``checksum`` is the SHA1 digest of the whole file, which cannot be verified without reading every weight. It is
verified where a file has it, and not written.

A save renames the weights file first. If the save is killed before it renames the model file, its complete draft is on the
disk, and the signature names the draft by its digest: the next read reads the draft.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, TypeVar

import numpy as np

from dovetail.errors import DovetailError, FormatError
from dovetail.storage import atomic_write, files
from dovetail.storage.deviations import Deviations
from dovetail.storage.safetensors_file import signature_in_header
from dovetail.storage.weights_file import DIGEST, PairSignature, WeightsFile, signature_in_trailer

T = TypeVar("T")
_MODEL_SUFFIXES = (".onnx", ".xml", ".dt", ".pb", ".ort")
PROPERTY = "dovetail.external_data"
"""The metadata property of an ONNX model for the digest of its weights file."""
RT_INFO = ("dovetail", "weights")
"""The path of the digest in the ``rt_info`` of an IR."""
# Repeated reads while other processes save: each repetition takes a whole save.
_ATTEMPTS = 32
_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""Seconds to wait before a refused pair is read again."""


class Pair:
    """One read of a model file with its weights files.

    ``record`` is the digest in the model file, if any; ``is_safetensors`` tells whether an IR has a safetensors file.
    """

    def __init__(self, file: str | None, record: str | None = None) -> None:
        self.file = file
        self.record = record
        self.is_safetensors = False
        self.torn: PairSignature | None = None

    def check(self, name: str, data: files.Bytes) -> None:
        """Raise FormatError [file.pair] where the whole weights file ``name`` was written with another model file."""
        signature = signature_of(data)
        if signature is None or signature.weights == self.record:
            return
        self.torn = signature
        actual = f"has the digest {self.record}" if self.record else "has no digest"
        message = f"{name!r} was saved with another model file: its digest is {signature.weights}, and the model file {actual}"
        raise FormatError("file.pair", message, file=self.file)


def signature_of(data: files.Bytes) -> PairSignature | None:
    """Return the signature of a weights file; None where it has none."""
    return signature_in_trailer(data) or signature_in_header(data)


def write(path: str, side_path: str, weights: WeightsFile, model_of: Callable[[str], bytes], *, is_named: bool) -> None:
    """Write a weights file and its model file; see :func:`atomic_write.replace_files`.

    ``model_of`` returns the model file that contains a digest; ``is_named``: the caller named the weights file. Raises
    FormatError [path.foreign] like :func:`refuse_foreign` where it did not.
    """
    if not is_named:
        refuse_foreign(side_path, path)
    weights.lay_out()
    with atomic_write.replace_files([path, side_path]) as (main, side), weights.hashing() as digest_of:
        weights.copy_to(side)
        digest = digest_of()
        model = model_of(digest)
        main.write(model)
        sign(side, weights, digest, model)


def refuse_foreign(side_path: str, path: str) -> None:
    """Raise FormatError [path.foreign] where a weights file that no argument names would replace a file of another model or tool.

    The file at ``side_path`` is replaced where the model file at ``path`` refers to it, or where an earlier save wrote it and no
    model file of the folder refers to it (a save that was interrupted, a model file that was removed).
    """
    side = _content_of(side_path)
    if side is None:
        # Nothing is there, or what replace_files refuses.
        return
    signature = signature_of(np.frombuffer(side, np.uint8))
    name = os.path.basename(side_path)
    if signature is None:
        belongs = _refers_without_digest(path, name)
        owner = "no save of dovetail"
    else:
        others = [file for file in _files_beside(side_path) if os.path.realpath(file) != os.path.realpath(path)]
        # A concurrent save may replace the model file between two looks: it is never another owner.
        owners = [] if _refers(path, signature) else [file for file in others if _refers(file, signature)]
        belongs = not owners
        owner = "" if belongs else f"a save of {os.path.basename(owners[0])!r}"
    if not belongs:
        message = (
            f"the weights need the file {name!r}, which exists and is of {owner}: choose another name for the model, or move it"
        )
        raise FormatError("path.foreign", message, file=path)


def _content_of(path: str) -> bytes | mmap.mmap | None:
    """Map a regular file; None where there is none that can be read."""
    flags = os.O_RDONLY | files.NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _refers(path: str, signature: PairSignature) -> bool:
    """Tell whether a model file has the digest of the weights file."""
    content = _content_of(os.path.realpath(path))
    return content is not None and content.find(signature.weights.encode()) >= 0


def _refers_without_digest(path: str, name: str) -> bool:
    """Tell whether a model file refers to a weights file of another tool: ONNX by its name, IR by its own name."""
    content = _content_of(os.path.realpath(path))
    if content is None:
        return False
    is_ir = content[:4096].find(b"<net") >= 0
    if is_ir and name == os.path.splitext(os.path.basename(path))[0] + ".bin":
        return True
    return not is_ir and content.find(os.fsencode(name)) >= 0


def _files_beside(side_path: str) -> list[str]:
    """Return the model files in the folder of a weights file: those of its stem, and those with a suffix of models."""
    folder = os.path.dirname(side_path) or os.curdir
    stem = os.path.splitext(os.path.basename(side_path))[0]
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name != os.path.basename(side_path))
        return [os.path.join(folder, name) for name in names if name.startswith(stem) or name.endswith(_MODEL_SUFFIXES)]
    return []


def sign(side: BinaryIO, weights: WeightsFile, digest: str, model: bytes) -> None:
    """Write the digests of the weights and of the model file into the weights file."""
    weights.sign(side, PairSignature(digest, _digest(model)))


def read(
    path: files.StrPath,
    limit: int,
    attempt: Callable[[files.Content, Pair, Deviations | None], T],
    deviations: Deviations | None,
) -> T:
    """Call ``attempt`` on the bytes of the model file; repeat with newer bytes while the weights file is of another save.

    Raises what ``attempt`` raises, and [file.pair] where no model file belongs to the weights file.
    """
    file = os.fspath(path)
    data: files.Content = files.read_content(path, limit)
    interrupted: FormatError | None = None
    tried: set[tuple[str, PairSignature]] = set()
    repeats = 0
    while True:
        pair = Pair(file)
        new_deviations = None if deviations is None else Deviations()
        try:
            model = attempt(data, pair, new_deviations)
        except DovetailError:
            if pair.torn is not None and len(tried) < _ATTEMPTS and repeats < len(_PAUSES):
                tried.add((_digest(data), pair.torn))
                newer, interrupted = _newer(path, limit, data, pair)
                if newer is None or (_digest(newer), pair.torn) in tried:
                    # No process is writing, or saves of the same few models follow each other.
                    time.sleep(_PAUSES[repeats])
                    repeats += 1
                    newer, interrupted = files.read_content(path, limit), None
                data = newer
                continue
            if deviations is not None and new_deviations is not None:
                deviations.extend(new_deviations)
            raise
        if deviations is not None and new_deviations is not None:
            deviations.extend(new_deviations)
            if interrupted is not None:
                deviations.add(interrupted)
        elif interrupted is not None:
            raise interrupted
        return model


def _newer(path: files.StrPath, limit: int, data: files.Content, pair: Pair) -> tuple[files.Content | None, FormatError | None]:
    """Return the model file if it is newer than ``data``, else the draft of the weights file's save, and the deviation."""
    assert pair.torn is not None
    for _ in range(2):
        again = files.read_content(path, limit)
        if _digest(again) != _digest(data):
            return again, None
        for draft, is_alive in atomic_write.drafts_of(path, limit):
            if _digest(draft) == pair.torn.model:
                message = (
                    "a save was interrupted between its two files: the draft of its model file is read; save the model again"
                )
                return draft, None if is_alive else FormatError("file.pair", message, file=pair.file)
        # A writer may have renamed its draft between the two reads.
    return None, None


def _digest(data: files.Content) -> str:
    return hashlib.sha256(data).digest()[:DIGEST].hex()
