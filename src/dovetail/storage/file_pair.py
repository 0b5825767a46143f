"""A model file and its weights file: digests prove that one save wrote both, so that a read never mixes two saves.

A weights file has a signature: the digest of the weights and the digest of the model file. The signature is a trailer of the
file, or in the header of a safetensors file. The model file contains the digest of the weights: ONNX in the metadata property
``dovetail.external_data``, IR in ``rt_info`` under ``dovetail/weights``. A digest is the first 24 bytes of a SHA-256; that of
the weights is computed from the SHA-256 digests of blocks. Equal models therefore give equal bytes. A read compares the two
stored digests of the weights and hashes nothing. A weights file without a signature, from another tool, is accepted.

ONNX's ``checksum`` is the SHA1 digest of the whole weights file, which cannot be verified without reading every weight.
dovetail verifies the checksum of files that have one, and writes no checksum.

A save renames the weights file first. If the save is killed before it renames the model file, the complete draft of the model
file is on the disk. The signature has the draft's digest, and the next read reads the draft.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, TypeVar

import numpy as np

from dovetail.errors import DovetailError, FormatError
from dovetail.storage import atomic_write, files
from dovetail.storage.deviations import Deviations
from dovetail.storage.digest import map_file
from dovetail.storage.safetensors_file import signature_in_header
from dovetail.storage.weights_file import DIGEST, PairSignature, WeightsFile, signature_in_trailer

T = TypeVar("T")
_MODEL_SUFFIXES = (".onnx", ".xml", ".dt", ".pb", ".ort")
PROPERTY = "dovetail.external_data"
"""The metadata property of an ONNX model that holds the digest of its weights file."""
RT_INFO = ("dovetail", "weights")
"""The path, in the ``rt_info`` of an IR, of the item that holds the digest of the weights."""
# The maximum number of repeated reads while other processes save; a read is repeated only after another save.
_ATTEMPTS = 32
_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""The seconds to wait before each new read of a pair whose digests differ."""


class Pair:
    """Pair is the state of one read of a model file with its weights files.

    ``record`` is the digest of the weights that the model file contains, if any. ``is_safetensors`` states that the weights of an
    IR are in a safetensors file. ``torn`` is the signature of a weights file that was saved with another model file.
    """

    def __init__(self, file: str | None, record: str | None = None) -> None:
        self.file = file
        self.record = record
        self.is_safetensors = False
        self.torn: PairSignature | None = None

    def check(self, name: str, data: files.Bytes) -> None:
        """Raise FormatError [file.pair] if the weights file ``name`` of content ``data`` was saved with another model file."""
        signature = signature_of(data)
        if signature is None or signature.weights == self.record:
            return
        self.torn = signature
        actual = f"has the digest {self.record}" if self.record else "has no digest"
        message = f"{name!r} was saved with another model file: its digest is {signature.weights}, and the model file {actual}"
        raise FormatError("file.pair", message, file=self.file)


def signature_of(data: files.Bytes) -> PairSignature | None:
    """Return the signature of a weights file; None for a file without a signature."""
    return signature_in_trailer(data) or signature_in_header(data)


def write(path: str, side_path: str, weights: WeightsFile, model_of: Callable[[str], bytes], *, is_named: bool) -> None:
    """Write a weights file and its model file; see :func:`atomic_write.replace_files`.

    ``model_of`` returns the bytes of the model file for the digest of the weights. ``is_named``: the user named the weights file;
    otherwise raises FormatError [path.foreign] like :func:`refuse_foreign`.
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
    """Raise FormatError [path.foreign] if a weights file with a default name would replace a file of another model or tool.

    The file at ``side_path`` may be replaced in two cases: the model file at ``path`` refers to the file, or an earlier save of
    dovetail wrote the file and no model file of the folder refers to it (an interrupted save, a removed model file).
    """
    side = map_file(side_path, files.NO_FOLLOW)
    if side is None:
        # There is no file, or replace_files refuses the file.
        return
    signature = signature_of(np.frombuffer(side, np.uint8))
    name = os.path.basename(side_path)
    if signature is None:
        belongs = _refers_without_digest(path, name)
        owner = "no save of dovetail"
    else:
        others = [file for file in _files_beside(side_path) if os.path.realpath(file) != os.path.realpath(path)]
        # A concurrent save may replace the model file between two reads; ``path`` itself therefore never counts as an owner.
        owners = [] if _refers(path, signature) else [file for file in others if _refers(file, signature)]
        belongs = not owners
        owner = "" if belongs else f"a save of {os.path.basename(owners[0])!r}"
    if not belongs:
        message = f"the weights file {name!r} exists and belongs to {owner}: save under another name, or move it"
        raise FormatError("path.foreign", message, file=path)


def _refers(path: str, signature: PairSignature) -> bool:
    """Return whether a model file contains the digest of the weights in ``signature``."""
    content = map_file(os.path.realpath(path), files.NO_FOLLOW)
    return content is not None and content.find(signature.weights.encode()) >= 0


def _refers_without_digest(path: str, name: str) -> bool:
    """Return whether a model file refers to the weights file ``name``: ONNX contains the name, an IR has the same stem."""
    content = map_file(os.path.realpath(path), files.NO_FOLLOW)
    if content is None:
        return False
    is_ir = content[:4096].find(b"<net") >= 0
    if is_ir and name == os.path.splitext(os.path.basename(path))[0] + ".bin":
        return True
    return not is_ir and content.find(os.fsencode(name)) >= 0


def _files_beside(side_path: str) -> list[str]:
    """Return the files in the folder of a weights file whose names begin with its stem or end with a suffix of model files."""
    folder = os.path.dirname(side_path) or os.curdir
    stem = os.path.splitext(os.path.basename(side_path))[0]
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name != os.path.basename(side_path))
        return [os.path.join(folder, name) for name in names if name.startswith(stem) or name.endswith(_MODEL_SUFFIXES)]
    return []


def sign(side: BinaryIO, weights: WeightsFile, digest: str, model: bytes) -> None:
    """Write the signature, the digests of the weights and of the model file, into the weights file."""
    weights.sign(side, PairSignature(digest, _digest(model)))


def read(
    path: files.StrPath,
    limit: int,
    attempt: Callable[[files.Content, Pair, Deviations | None], T],
    deviations: Deviations | None,
) -> T:
    """Call ``attempt`` on the bytes of the model file, and again on newer bytes while the weights file belongs to another save.

    Raises the errors of ``attempt``, and FormatError [file.pair] if no model file belongs to the weights file.
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
                    # No process is writing, or several processes save the same few models in succession.
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
    """Return the content of a model file newer than ``data``, or else of the draft that the save of the weights file left.

    The second result is the deviation that reports a draft; it is None for a newer model file, and while the draft's writer
    runs. Without a newer file and without a draft both results are None.
    """
    assert pair.torn is not None
    for _ in range(2):
        again = files.read_content(path, limit)
        if _digest(again) != _digest(data):
            return again, None
        for draft, is_alive in atomic_write.drafts_of(path, limit):
            if _digest(draft) == pair.torn.model:
                message = (
                    "a save was interrupted between its two files; the draft of the model file was read: save the model again"
                )
                return draft, None if is_alive else FormatError("file.pair", message, file=pair.file)
        # A writer may have renamed its draft to the model file between the two reads: file and drafts are read a second time.
    return None, None


def _digest(data: files.Content) -> str:
    # Deferred for start-up time.
    import hashlib

    return hashlib.sha256(data).digest()[:DIGEST].hex()
