"""Text of an issue about a wrong release: the outcomes, the smallest model and the commands that show it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.compare.reduce.model_parts import operators_of
from dovetail.compare.referee.judgement import AGREES, Judgement
from dovetail.compare.referee.reproduction import Outcome
from dovetail.errors import printable
from dovetail.report.printer import show
from dovetail.runtime.releases.release import Release, release_of

MAX_ELEMENTS = 8
RUN_LINES = {
    "onnx": (
        "import numpy as np, onnx.reference",
        "runtime = onnx.reference.ReferenceEvaluator({model!r})",
        "print(runtime.run(None, dict(np.load({inputs!r}))))",
    ),
    "onnxruntime": (
        "import numpy as np, onnxruntime",
        'runtime = onnxruntime.InferenceSession({model!r}, providers=["CPUExecutionProvider"])',
        "print(runtime.run(None, dict(np.load({inputs!r}))))",
    ),
    "openvino": (
        "import numpy as np, openvino",
        'compiled = openvino.Core().compile_model({model!r}, "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})',
        "print(compiled(dict(np.load({inputs!r}))))",
    ),
}
"""The lines of Python that run a model file on the arrays of an .npz file, by the package of the runtime."""


def issue_text(judgement: Judgement, model: str, inputs: str) -> str:
    """Return the text of an issue, in Markdown; ``model`` and ``inputs`` are the paths of the files to attach.

    The judgement must have a faulty release and a smallest model.
    """
    # Deferred: the package imports its modules while it is imported itself.
    from dovetail import __version__

    assert judgement.faulty is not None and judgement.smallest is not None
    release = release_of(judgement.faulty)
    assert release is not None
    model, inputs = os.path.basename(model), os.path.basename(inputs)
    lines = [
        f"# {_title(judgement, release)}",
        "",
        f"The model below gives these outputs, for the attached inputs ({model}, {inputs}):",
        "",
        "| Runtime | Output |",
        "| --- | --- |",
        *(f"| {name} | {_cell(outcome, judgement)} |" for name, outcome in judgement.outcomes.items()),
        "",
        "```",
        *printable_lines(show(judgement.smallest)),
        "```",
        "",
        f"To reproduce: `pip install {release}`, then",
        "",
        "```python",
        *(line.format(model=model, inputs=inputs) for line in RUN_LINES[release.package]),
        "```",
        "",
        f"The interpreter is that of dovetail {__version__}, which computes each operator by itself.",
    ]
    small = _small_inputs(judgement.inputs)
    if small:
        lines += ["", "Inputs:", "", "```", *small, "```"]
    lines += ["", f"Platform: {platform.platform()}, {platform.machine()}, Python {sys.version.split()[0]}.", ""]
    return "\n".join(lines)


def _title(judgement: Judgement, release: Release) -> str:
    status = next(row.status for row in judgement.rows if row.engine == judgement.faulty)
    assert judgement.smallest is not None
    kinds = [type(node.op).__name__ for node in operators_of(judgement.smallest)]
    operators = " and ".join(dict.fromkeys(kinds))
    verb = {"differs": "gives wrong outputs for", "refuses": "refuses", "crashes": "crashes on", "hangs": "hangs on"}[status]
    working = [row.engine for row in judgement.rows if row.status == AGREES]
    return printable(f"{release} {verb} {operators}" + (f", {working[0]} does not" if working else ""))


def printable_lines(text: str) -> list[str]:
    """Return the lines of a text with controls escaped, without fences that would end a block of code."""
    return [printable(line).replace("```", "'''") for line in text.splitlines() if not line.startswith("#")]


def _cell(outcome: Outcome, judgement: Judgement) -> str:
    """Return the outputs of a runtime for a cell of a table."""
    if outcome.arrays is None:
        return f"fails: {_escape(outcome.why)}"
    base = judgement.outcomes[judgement.reference].arrays
    texts = [_text(array, None if base is None else base[index]) for index, array in enumerate(outcome.arrays)]
    return _escape("; ".join(texts))


def _escape(text: str) -> str:
    return printable(" ".join(text.split())).replace("|", "\\|").replace("<", "&lt;")


def _text(item: object, expected: object) -> str:
    """Return a small array, or the elements of a larger one around its first difference from the expected array."""
    if not isinstance(item, np.ndarray):
        return str(item)[:200]
    flat = item.reshape(-1)
    if flat.size <= MAX_ELEMENTS:
        return f"{item.dtype}{list(item.shape)} {flat.tolist()}"
    start = 0
    if isinstance(expected, np.ndarray) and expected.shape == item.shape and item.dtype.kind in "fiub":
        apart = ~np.isclose(flat, expected.reshape(-1), rtol=1e-4, atol=1e-6, equal_nan=True)
        start = min(int(np.argmax(apart)), flat.size - MAX_ELEMENTS)
    return f"{item.dtype}{list(item.shape)}, elements from {start}: {flat[start : start + MAX_ELEMENTS].tolist()}"


def _small_inputs(inputs: Mapping[str, Any]) -> list[str]:
    return [
        printable(f"{name} = np.array({array.tolist()!r}, np.{array.dtype})")
        for name, array in inputs.items()
        if isinstance(array, np.ndarray) and array.size <= 4 * MAX_ELEMENTS
    ]
