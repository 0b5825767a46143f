"""Export blockers: the nodes that each format and opset cannot express, determined without writing a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dovetail.errors import Diagnostic, DovetailError
from dovetail.ir.graph import Model
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.limits import counting, within_memory

OLDEST = 7
"""The oldest opset that is tried: runtimes of older opsets are rare, and older operators broadcast differently."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """ExportTarget is a format and opset (None: OpenVINO IR) with the faults of an export.

    ``faults`` is empty if the model can be exported. ``skipped`` is the reason why the export was not tried, or empty.
    """

    format: str
    opset: int | None
    faults: tuple[Diagnostic, ...] = ()
    skipped: str = ""

    @property
    def name(self) -> str:
        return "OpenVINO IR" if self.opset is None else f"ONNX opset {self.opset}"


def export_blockers(model: Model, seconds: float = 15.0) -> list[ExportTarget]:
    """Try the export to IR and to each opset of ONNX. After ``seconds`` the remaining opsets are skipped.

    A fault names the node of the model. The result lists IR first, then the opsets in descending order.
    """
    from dovetail.formats.onnx.schemas import newest_opset

    newest = newest_opset("", 1) or 0
    own = model.versions.get("", 0) if model.format == "onnx" else 0
    opsets = list(dict.fromkeys(each for each in (own, newest, 21, *range(newest, OLDEST - 1, -1)) if OLDEST <= each <= newest))
    found = dict(_try_exports(model, [None, *opsets], time.monotonic() + seconds))
    return [found[opset] for opset in [None, *sorted(opsets, reverse=True)]]


def _try_exports(model: Model, opsets: list[int | None], end: float) -> Iterator[tuple[int | None, ExportTarget]]:
    for opset in opsets:
        format = "openvino" if opset is None else "onnx"
        if opset is not None and time.monotonic() > end:
            yield opset, ExportTarget(format, opset, skipped="no time left")
            continue
        faults: tuple[Diagnostic, ...] = ()
        try:
            with pause_gc(), counting(model.limits), within_memory("the export", model.file):
                _export(model, opset)
        except DovetailError as error:
            faults = error.diagnostics
        yield opset, ExportTarget(format, opset, faults)


def _export(model: Model, opset: int | None) -> None:
    if opset is None:
        from dovetail.formats.openvino.write import to_foreign

        to_foreign(model)
        return
    from dovetail.formats.onnx.opset_conversion import export_at

    export_at(model, opset)
