"""Arrays of the command line: inputs read from .npy and .npz files or drawn at random, and outputs written to files."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence as Several
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import numpy as np

from dovetail.cli.output import STREAM, read_stdin
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import flatten_outputs, sizes_of_arrays
from dovetail.ir.state import own_inputs
from dovetail.ir.types import Optional, Sequence, Type, dtype_in
from dovetail.ops.default_inputs import default_inputs
from dovetail.runtime.interpreter.session import InitialStates
from dovetail.storage.atomic_write import replace_file

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
N = TypeVar("N", int, float)
ZIP_NAME_LIMIT = 65_000
"""The maximum bytes of a name in an .npz file; a zip file allows 65,535."""


def sizes_of(pairs: Several[str], option: str = "--dim") -> dict[str, int]:
    """Parse ``--dim name=size`` to a mapping; ``option`` is the name in messages."""
    found: dict[str, int] = {}
    for pair in pairs:
        name, mark, size = pair.rpartition("=")
        if not mark or not (size.isascii() and size.isdigit()):
            raise click.UsageError(f"{option} takes NAME=SIZE, not {pair!r}")
        found[name] = int(size)
    return found


def ranges_of(pairs: Several[str], option: str, number: Callable[[str], N]) -> dict[str, tuple[N, N]]:
    """Parse name=low..high to a mapping; ``option`` is the name in messages, ``number`` reads an end or raises ValueError."""
    found: dict[str, tuple[N, N]] = {}
    for pair in pairs:
        name, mark, text = pair.rpartition("=")
        low, dots, high = text.partition("..")
        try:
            found[name] = number(low), number(high)
            is_ordered = found[name][0] <= found[name][1]
        except ValueError:
            is_ordered = False
        if not (mark and dots and is_ordered):
            raise click.UsageError(f"{option} takes NAME=LOW..HIGH, not {pair!r}")
    return found


def size_of(text: str) -> int:
    """Return a size. Raises ValueError for a text that is not made of digits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def shapes_of(pairs: Several[str]) -> dict[str, list[int]]:
    """Parse ``--shape name=1,3,224,224`` to a mapping; a scalar's shape is ``name=``."""
    found: dict[str, list[int]] = {}
    for pair in pairs:
        name, mark, text = pair.rpartition("=")
        sizes = [size.strip() for size in text.split(",")] if text.strip() else []
        if not mark or not all(size.isascii() and size.isdigit() for size in sizes):
            raise click.UsageError(f"--shape takes NAME=SIZE,SIZE,..., not {pair!r}")
        found[name] = [int(size) for size in sizes]
    return found


def read_inputs(
    model: Model,
    given: Several[str],
    seed: int,
    dims: Several[str],
    shapes: Mapping[str, Several[int]] | None = None,
    *,
    run: bool = False,
    distinct: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Read ``name=file.npy`` and ``file.npz``, and draw the other inputs; return all arrays and the names of drawn inputs.

    With ``run`` the drawn inputs have sizes at which a trial run of the model succeeded. With ``distinct`` each open size is a
    different number.
    """
    from dovetail.runtime.random_inputs import choose_sizes, random_inputs

    found = read_files(model, given)
    sizes = sizes_of(dims)
    try:
        choose_sizes(model, sizes)
    except DovetailError as error:
        raise click.UsageError(f"--dim: {error.message}") from None
    missing = [value.name for value in own_inputs(model) if value.name not in found]
    if missing:
        known = {**sizes_of_arrays(model.inputs, found), **sizes}
        found.update(
            random_inputs(
                model,
                seed=seed,
                sizes=known,
                shapes=shapes,
                only=missing,
                beside=dict(found) if run else None,
                distinct=distinct,
            )
        )
    return {**InitialStates(model)(found), **found} if model.states else found, missing


def read_files(model: Model, given: Several[str]) -> dict[str, Any]:
    """Read ``name=file.npy`` and ``file.npz``; return the arrays by the names of inputs. Raises UsageError, EngineError."""
    aliases = {alias: value.name for value in model.inputs for alias in value.names if alias}
    found: dict[str, Any] = {}
    for item in given:
        name, path = _named_file(model, item)
        loaded = read_array(path)
        if isinstance(loaded, dict) and not name:
            found.update(_collect_lists(model, {str(aliases.get(each, each)): array for each, array in loaded.items()}))
        elif isinstance(loaded, dict):
            raise click.UsageError(f"{path} has several named arrays: omit {name}= before the file")
        elif name:
            found[aliases.get(name, name)] = loaded
        elif len(model.inputs) == 1:
            found[model.inputs[0].name] = loaded
        else:
            raise click.UsageError(f"a file without an input's name needs a model of one input: use NAME={path}")
    for value in model.inputs:
        if value.name in found:
            found[value.name] = as_input(value.type, found[value.name])
    return found


def call_on_inputs(
    model: Model,
    given: Several[str],
    seed: int,
    dims: Several[str],
    call: Callable[[dict[str, Any], list[str]], Result],
    is_good: Callable[[Result], bool] = lambda result: True,
    strict: Model | None = None,
    distinct: bool = False,
) -> tuple[dict[str, Any], list[str], Result]:
    """Call ``call`` with the inputs of ``read_inputs`` and the names of random inputs; return inputs, names and result.

    With ``distinct`` each open size is a different number, if the model runs at such sizes.

    If the call fails or ``is_good`` is false for its result, and inputs are random, the call is repeated at sizes at which a
    trial run succeeded. The reason is that shapes do not ensure that an index is in range, and not every engine checks indices.
    ``strict`` is the model of the trial run, if its checks are stricter than those of ``model``.
    """
    arrays, random = read_inputs(model, given, seed, dims, distinct=distinct)
    try:
        result = call(arrays, random)
        if is_good(result) or not random:
            return arrays, random, result
        failed = None
    except DovetailError as error:
        if not random:
            raise
        failed = error
    others, _ = read_inputs(strict or model, given, seed, dims, run=True, distinct=distinct)
    if any(np.shape(others[name]) != np.shape(arrays[name]) for name in random):
        return others, random, call(others, random)
    if failed is not None:
        raise failed
    return arrays, random, result


def _collect_lists(model: Model, loaded: dict[str, Array]) -> dict[str, Any]:
    """Collect arrays ``name/0``, ``name/1``, ... into a list where the input ``name`` is a sequence."""
    found: dict[str, Any] = dict(loaded)
    for value in model.inputs:
        places = [f"{value.name}/{place}" for place in range(len(loaded))]
        if value.name not in loaded and isinstance(element_of_optional(value.type), Sequence) and places and places[0] in loaded:
            found[value.name] = [found.pop(place) for place in takewhile(loaded.__contains__, places)]
    return found


def element_of_optional(type: Type) -> Type:
    """Return the element type of nested optionals."""
    return element_of_optional(type.element) if isinstance(type, Optional) else type


def _named_file(model: Model, item: str) -> tuple[str, str]:
    """Split ``NAME=FILE``; names and files may contain equals signs."""
    names = {name for value in model.inputs for name in (value.name, *value.names)} | default_inputs(model.graph).keys()
    places = [place for place, character in enumerate(item) if character == "="]
    for place in places:
        if item[:place] in names:
            return item[:place], item[place + 1 :]
    if not places or Path(item).is_file():
        return "", item
    return item[: places[0]], item[places[0] + 1 :]


def read_array(path: str) -> Any:
    """Read the array of an .npy file or the arrays of an .npz file; ``-`` is stdin. No content is executed.

    Raises EngineError [array.file]; UsageError for a missing file.
    """
    if path != STREAM and not Path(path).is_file():
        raise click.UsageError(f"there is no file {path!r}")
    try:
        # np.load would not close a file that it opens and then refuses.
        with io.BytesIO(read_stdin()) if path == STREAM else open(path, "rb") as source:
            loaded = np.load(source, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                return loaded
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
        raise EngineError("array.file", f"{path} must be a .npy or .npz file without Python objects: {error}") from None


def as_input(type: Type, array: Any) -> Any:
    """Convert an array from a file to an input's element type if .npy files cannot store that type.

    .npy files cannot store bf16, f8 and 4-bit types (the file has raw bytes, or a wider type with the same values), nor strings
    of variable length.
    """
    if isinstance(array, list):
        element = element_of_optional(type)
        return [as_input(element.element, each) for each in array] if isinstance(element, Sequence) else array
    wanted = dtype_in(element_of_optional(type))
    if wanted is None or array.dtype == wanted.numpy:
        return array
    if array.dtype.kind in "US" and wanted == "string":
        return array.astype(object)
    if not is_foreign_to_files(wanted):
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.numpy.itemsize:
        raw: Array = array.view(wanted.numpy)
        return raw
    if array.dtype.kind in "fiu":
        exact: Array = array.astype(wanted.numpy)
        if np.array_equal(exact.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"):
            return exact
    return array


def is_foreign_to_files(dtype: DType) -> bool:
    """Return whether .npy files cannot store an element type."""
    return dtype.numpy.kind == "V" or dtype.numpy.num > 255


def savable(given: Array | list[Array]) -> Array:
    """Convert an array to a type of .npy files: strings to unicode, other types to a wider type with the same values."""
    array: Array = np.asarray(given)
    if array.dtype == object:
        return array.astype(str)
    if array.dtype.kind == "V" or array.dtype.num > 255:
        # f32 represents all values of these float types, and i8 all values of these integer types, u4 included.
        return array.astype(np.int8) if "int" in array.dtype.name else array.astype(np.float32)
    return array


def check_target(path: str, outputs: int) -> None:
    """Check before the run that ``outputs`` arrays can be written to ``path``. Raises UsageError."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".npz", ".npy"):
        raise click.UsageError(f"the output must be an .npz file, or an .npy file for one array, got {path!r}")
    if suffix == ".npy" and outputs != 1:
        raise click.UsageError(f"{outputs} outputs need an .npz file")


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an .npz file, or a single array to an .npy file; the file is replaced atomically.

    A sequence becomes ``name/0``, ..., a map ``name/key``, ...; an absent optional is omitted.

    Raises EngineError [array.file] for a .npy file where there is not exactly one array.
    """
    plain: dict[str, Array] = {}
    for name, item in arrays.items():
        plain.update({place: savable(each) for place, each in flatten_outputs({name: item}).items()})
    if path == STREAM:
        _write_npz(sys.stdout.buffer, plain)
        return
    if Path(path).suffix.lower() == ".npy" and len(plain) != 1:
        raise EngineError("array.file", f"a .npy file must hold exactly one array, got {len(plain)}: use an .npz file")
    with replace_file(path) as stream:
        if Path(path).suffix.lower() == ".npy":
            np.save(stream, next(iter(plain.values())), allow_pickle=False)
        else:
            _write_npz(stream, plain)


def _write_npz(stream: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write arrays in the format of numpy.savez, but with any names and without time stamps."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > ZIP_NAME_LIMIT:
                raise EngineError("name.invalid", f"a name in an .npz file must be short and without NUL, got {name[:80]!r}")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
