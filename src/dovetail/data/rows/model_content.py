"""The content and the row signature of a model, for a mapper that is sent to other processes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from hashlib import sha256
from os import PathLike
from typing import Any

from dovetail.data.rows.batch_axis import row_signature
from dovetail.data.rows.constant_inputs import fit_constants
from dovetail.data.rows.constants import Constants
from dovetail.data.rows.row_signature import RowSignature
from dovetail.data.rows.shared_program import ModelContent
from dovetail.errors import FormatError
from dovetail.formats import load
from dovetail.ir.graph import Model
from dovetail.ir.limits import Limits
from dovetail.storage.digest import digest_of_file, name_of
from dovetail.storage.files import record_files


def read_model(
    model: Model | str | PathLike[str], limits: Limits | None, constants: Mapping[str, Any], cast: bool
) -> tuple[ModelContent, RowSignature, Constants]:
    """Load a model and return its content, row signature and constants.

    Raises the errors of ``load``, ``fit_constants`` and ``row_signature``.
    """
    if not isinstance(model, str | PathLike):
        # An object of the onnx package is loaded too.
        model = model if isinstance(model, Model) else load(model, limits=limits)
        pickled = pickle.dumps(model)
        return ModelContent(sha256(pickled).hexdigest(), pickled=pickled), *_signature(model, constants, cast)
    path = os.path.abspath(os.fspath(model))
    with record_files() as files:
        loaded = load(path, limits=limits)
    folder = os.path.dirname(path)
    others = sorted({os.path.realpath(other) for other, _ in files} - {os.path.realpath(path)})
    digests = [(os.path.relpath(file, folder), _digest(file)) for file in (path, *others)]
    digest = name_of([digests[0][1], *(part for pair in digests[1:] for part in pair)])
    content = ModelContent(digest, path, tuple(digests))
    return content, *_signature(loaded, constants, cast)


def _signature(model: Model, values: Mapping[str, Any], cast: bool) -> tuple[RowSignature, Constants]:
    constants = fit_constants(values, model, cast)
    return row_signature(model, constants), constants


def _digest(path: str) -> str:
    digest = digest_of_file(path)
    if digest is None:
        raise FormatError("path.unreadable", f"the file {path!r} must be readable", file=path)
    return digest.hex()
