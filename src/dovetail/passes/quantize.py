"""dovetail.quantize: store weights in fewer bits within a budget of output error, and measure the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.errors import ArgumentTypeError, RuleError
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.passes.quantization.codes import BLOCK_SIZES
from dovetail.passes.quantization.report import QuantizeOptions
from dovetail.runtime.random_inputs import Inputs

TARGETS = ("int8", "int4", "f8", "f8e5m2", "f16", "bf16")
METHODS = ("minmax", "percentile", "mse")
ROUNDINGS = ("nearest", "gptq")
ENCODINGS = ("matmulnbits", "qdq", "ir")
_TYPES = (
    ("block_size", int | None, "an integer"),
    ("symmetric", bool | None, "True or False"),
    ("verify", bool, "True or False"),
    ("keep", list | tuple | set | frozenset, "a list of names"),
)
"""Types of options that have no list of names."""


@check_keywords
def quantize(
    model: Model,
    to: str = "int8",
    *,
    inputs: Mapping[str, Any] | Inputs | None = None,
    budget: float | None = None,
    options: QuantizeOptions | None = None,
) -> Model:
    """Return a model whose weights are stored in fewer bits; its ``report`` is a QuantizeReport.

    ``to`` is "int8" (integer weights, one scale per output channel), "int4" (products in blocks, each with a scale and a zero
    point; convolutions, recurrent layers, tables of Gather and weights in subgraphs as int8), "f8" or "f8e5m2" (floats of 8
    bits, f8e4m3 or f8e5m2, with one scale per output channel), "f16" or "bf16" (all constants of at least 256 elements, with a
    Cast to f32 behind them). The computations keep their type. Weights with NaN or infinities, those that exceed the range of
    f16, and, for integers, those near the largest number of their type keep their type; the report has the reason.

    ``inputs`` are rows for the model: arrays by name, or :class:`dovetail.Inputs`, with the rows on the first axis. Inputs
    without an array are random, and the report names them. A quarter of the rows is held out. Weights are rounded to nearest;
    where rows are passed, the rounding errors of a product's or convolution's weights compensate each other on these rows (GPTQ),
    and constant biases make up for the mean errors.

    The report has for each node a predicted error (from one forward and one backward pass for each call), and the measured error
    on the held-out rows. An error is ``norm(y - y0) / norm(y0)`` over all rows, the largest of all float outputs; a
    prediction adds up the squares of all float outputs.

    With ``budget``, an upper bound of that error such as 0.005, nodes keep their weights in order of error for each saved byte
    until a confidence bound of the error on other rows, ``upper``, is within the budget. That comes from the spread over calls
    (jackknife, Student's t), the held-out ones and all: on as many other rows of the same distribution, the error exceeds
    it in about 1 of 40 cases, and in up to 1 of 8 where outputs of different rows differ in size by orders of magnitude.
    Each bound is at most 4 times the error on its calls, and exactly that for a single call; ``upper`` is the larger one.

    Raises RuleError [argument.value] for an unknown ``to`` or option, and for rows with NaN; [argument.conflict] for a budget
    without runs; [name.unknown] for a name in ``keep`` that the model does not have; [argument.type]; [grad.dtype] where a budget
    is given and no output is a float tensor; EngineError [input.*] for rows that do not fit the model; UnsupportedError
    [constant.needed] for a model without such weights, [runtime.missing]; and the errors of :func:`run`.

    Sources: Frantar et al., "GPTQ", 2023; the ranking is the Gauss-Newton estimate of the squared output error, with random
    probes (Hutchinson).

    >>> with dovetail.Builder() as b:
    ...     x = b.input("x", "f32", ("n", 64))
    ...     y = b.output("y", b.MatMul(x, np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)))
    >>> report = dovetail.quantize(b.model, "int8").report
    >>> (report.bytes_before, report.bytes, report.measured < 0.01)
    (8192, 2176, True)
    """
    if inputs is not None and not isinstance(inputs, Mapping | Inputs):
        raise ArgumentTypeError("argument.type", f"inputs must be arrays by name, got {type(inputs).__name__}")
    options = _check(to, budget, options, has_rows=bool(Inputs.of(inputs).arrays))
    # Deferred for start-up time: the encodings import a part of the operators.
    from dovetail.passes.quantization.quantizer import quantize_weights

    with counting(model.limits):
        return quantize_weights(model, to, Inputs.of(inputs), budget, options)


def _check(to: str, budget: float | None, options: QuantizeOptions | None, *, has_rows: bool) -> QuantizeOptions:
    """Return the options with their defaults. Raises RuleError [argument.value], [argument.conflict], [argument.type]."""
    # Deferred for start-up time: the engines of other runtimes.
    from dovetail.compare.values.engines import check_engines

    options = QuantizeOptions() if options is None else options
    if not isinstance(options, QuantizeOptions):
        raise ArgumentTypeError("argument.type", f"options must be QuantizeOptions, got {type(options).__name__}")
    for name, kinds, text in _TYPES:
        value = getattr(options, name)
        if not isinstance(value, kinds):
            raise ArgumentTypeError("argument.type", f"{name} must be {text}, got {value!r}")
    if to not in TARGETS:
        raise RuleError("argument.value", f"to must be one of {', '.join(TARGETS)}, got {to!r}{closest(str(to), TARGETS)}")
    if budget is not None and not (isinstance(budget, int | float | np.floating) and 0 <= budget < np.inf):
        raise RuleError("argument.value", f"budget must be a number of at least 0, such as 0.005, got {budget!r}")
    if budget is not None and not options.verify:
        raise RuleError("argument.conflict", "a budget needs runs of the model, got verify=False")
    if options.encoding is not None and options.encoding not in ENCODINGS:
        names = f"{', '.join(ENCODINGS)}, got {options.encoding!r}{closest(str(options.encoding), ENCODINGS)}"
        raise RuleError("argument.value", f"encoding must be one of {names}")
    if options.engine is not None:
        check_engines([options.engine], releases=False)
        if not options.verify:
            raise RuleError("argument.conflict", "an engine needs runs of the model, got verify=False")
    if to in ("f16", "bf16"):
        wrong = [
            name
            for name in ("block_size", "symmetric", "encoding", "rounding", "activations")
            if getattr(options, name) is not None
        ]
        if wrong:
            raise RuleError("argument.conflict", f"{to} has no codes, and takes no {', '.join(wrong)}")
        return options
    if options.block_size not in (None, 0, *BLOCK_SIZES):
        raise RuleError("argument.value", f"block_size must be 0 or one of {BLOCK_SIZES}, got {options.block_size!r}")
    block = options.block_size if options.block_size is not None else 32 if to == "int4" else 0
    if to.startswith("f8") and (options.block_size or options.symmetric is False):
        raise RuleError("argument.conflict", f"{to} has one scale per channel and no zero points, got {_describe_grid(options)}")
    symmetric = to != "int4" if options.symmetric is None else options.symmetric
    rounding = options.rounding or ("gptq" if has_rows and options.verify else "nearest")
    if rounding not in ROUNDINGS:
        raise RuleError("argument.value", f"rounding must be one of {', '.join(ROUNDINGS)}, got {options.rounding!r}")
    if rounding == "gptq" and not (has_rows and options.verify):
        raise RuleError("argument.conflict", "the rounding gptq needs runs of the model on rows, got no rows or verify=False")
    if options.activations is not None:
        _check_activations(to, block, options)
    return replace(options, block_size=block, symmetric=symmetric, rounding=rounding)


def _describe_grid(options: QuantizeOptions) -> str:
    return f"block_size={options.block_size}, symmetric={options.symmetric}"


def _check_activations(to: str, block: int, options: QuantizeOptions) -> None:
    """Raise RuleError [argument.value], [argument.conflict] if activations cannot be quantized as the options say."""
    if options.activations not in METHODS:
        raise RuleError("argument.value", f"activations must be one of {', '.join(METHODS)}, got {options.activations!r}")
    if to != "int8" or block or options.symmetric is False:
        message = "quantized activations need int8 weights with one scale per channel and without zero points"
        found = f"{to}, block_size={block}, symmetric={options.symmetric is not False}"
        raise RuleError("argument.conflict", f"{message}, got {found}")
    if not options.verify:
        raise RuleError("argument.conflict", "quantized activations need runs of the model, got verify=False")
