"""dovetail.interpret, the reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence as Several
from typing import Any

import numpy as np

from dovetail.errors import EngineError
from dovetail.formats.default_inputs import freeze_defaults
from dovetail.ir import arrays
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.evaluate import run
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import check_inputs, named_inputs, refuse_unusual, to_array, to_library
from dovetail.ir.limits import active, counting
from dovetail.ir.results import Results
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import is_shape_of
from dovetail.ops.constant import preserved_faults
from dovetail.ops.default_inputs import default_inputs, open_defaults, overridden


@check_keywords
def interpret(model: Model, inputs: Mapping[str, Array] | Several[Array], xp: Namespace | None = None) -> Results:
    """Compute the outputs of ``model`` in ``xp``, a namespace of the array API standard (default: numpy).

    ``inputs``: arrays by name, or in order. With a library other than numpy, inputs are arrays of that library or numpy arrays,
    which are converted; the results are arrays of that library.

    Raises EngineError [array.*], [input.*], [output.*], [run.*], [index.range], [loop.*], [program.*] for inputs that do not fit
    the model and elements that break a rule; UnsupportedError [array.dtype] for an element type that the library lacks, [op.*];
    and the errors of :func:`infer`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.interpret(b.model, {"x": np.array([[-1, 2]], np.float32)})["y"]
    array([[0., 2.]], dtype=float32)
    """
    space = np if xp is None else arrays.standard(xp)
    if default_inputs(model.graph):
        model, inputs = _bind_optional_inputs(model, inputs)
    arrays_by_name = named_inputs(model, inputs)
    if arrays.is_numpy(space):
        bound = [to_array(arrays_by_name[value.name], value) for value in model.inputs]
    else:
        refuse_unusual(model.graph, space)
        bound = [to_library(arrays_by_name[value.name], value, space) for value in model.inputs]
    check_inputs(model, bound)
    with counting(model.limits if active() is None else None):
        results = run(model.graph, bound, space)
    return Results({value.name: result for value, result in zip(model.outputs, results, strict=True)})


def _bind_optional_inputs(
    model: Model, inputs: Mapping[str, Array] | Several[Array]
) -> tuple[Model, Mapping[str, Array] | Several[Array]]:
    """Make the optional inputs that the caller passes graph inputs; return the new model and the inputs to bind.

    If a node needs one of the passed optional inputs as a constant, all of them become constants of the model instead, and are
    removed from the returned inputs.
    """
    names = overridden(model, inputs) if isinstance(inputs, Mapping) else []
    opened = open_defaults(model, names)
    if next(preserved_faults(opened.graph), None) is None:
        return opened, inputs
    if not isinstance(inputs, Mapping):
        return freeze_defaults(model), inputs
    others = {name: array for name, array in inputs.items() if name not in names}
    return freeze_defaults(model, check_defaults(model, inputs)), others


def check_defaults(model: Model, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arrays passed for optional inputs, and return them as numpy arrays.

    Raises EngineError [input.dtype], [input.type], [input.shape].
    """
    found = {}
    for name, node in default_inputs(model.graph).items():
        if name in arrays:
            value = node.outputs[0]
            array = to_array(arrays[name], value)
            if not is_shape_of(value.shape, array.shape):
                raise EngineError("input.shape", f"input {name!r} must be {value.type}, got the shape {list(array.shape)}")
            found[name] = array
    return found
