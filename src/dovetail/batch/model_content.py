"""The content and the signature of a model, for a mapper that another process calls."""

from __future__ import annotations

import os
import pickle
from hashlib import sha256
from os import PathLike

from dovetail.batch.batch_axis import row_signature
from dovetail.batch.row_signature import RowSignature
from dovetail.batch.shared_program import ModelContent
from dovetail.errors import FormatError
from dovetail.formats import load
from dovetail.formats.files import record_files
from dovetail.ir.graph import Model
from dovetail.limits import Limits
from dovetail.plan_cache.digest import digest_of_file, name_of


def read_model(
    model: Model | str | PathLike[str], limits: Limits | None, cache_dir: str | None
) -> tuple[ModelContent, RowSignature]:
    """Load a model. Raises the errors of ``load`` and of ``row_signature``."""
    if not isinstance(model, str | PathLike):
        # An object of the onnx package is loaded too.
        model = model if isinstance(model, Model) else load(model, limits=limits)
        pickled = pickle.dumps(model)
        return ModelContent(sha256(pickled).hexdigest(), pickled=pickled), row_signature(model)
    path = os.path.abspath(os.fspath(model))
    with record_files() as files:
        loaded = load(path, limits=limits)
    folder = os.path.dirname(path)
    others = sorted({os.path.realpath(other) for other, _ in files} - {os.path.realpath(path)})
    digests = [(os.path.relpath(file, folder), _digest(file)) for file in (path, *others)]
    digest = name_of([digests[0][1], *(part for pair in digests[1:] for part in pair)])
    content = ModelContent(digest, path, tuple(digests))
    return content, row_signature(loaded)


def _digest(path: str) -> str:
    digest = digest_of_file(path)
    if digest is None:
        raise FormatError("path.unreadable", f"the file {path!r} must be readable", file=path)
    return digest.hex()
