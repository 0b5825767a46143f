"""One graph for ONNX and OpenVINO IR: load, check, run, convert and differentiate neural-network models."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.compare.diff.model_diff import ModelDiff, diff
    from dovetail.compare.prove.certificate import check_certificate
    from dovetail.compare.prove.equality_proof import EqualityProof
    from dovetail.compare.prove.proof import prove
    from dovetail.compare.reduce.reduction import ReduceReport, reduce
    from dovetail.compare.values.bisect_result import BisectResult
    from dovetail.compare.values.bisection import bisect
    from dovetail.compare.values.layer_comparison import LayerComparison
    from dovetail.compare.values.layers import compare_layers
    from dovetail.data.rows.map_rows import MapOptions, MapReport, map_rows
    from dovetail.data.rows.mapper import Mapper
    from dovetail.data.tensors.recipe import reshard_graph
    from dovetail.data.tensors.reshard import ReshardReport, reshard
    from dovetail.errors import Diagnostic, DovetailError, EngineError, FormatError, RuleError, UnsupportedError
    from dovetail.formats import load, save
    from dovetail.ir.builder import Builder
    from dovetail.ir.dtypes import DType
    from dovetail.ir.extract import extract
    from dovetail.ir.graph import Graph, Model, Node, Value
    from dovetail.ir.infer import infer
    from dovetail.ir.limits import Limits
    from dovetail.ir.op import Op
    from dovetail.ir.symbolic import Dim
    from dovetail.laws.gradients import grad
    from dovetail.measure.cost import cost
    from dovetail.measure.cost_report import CostReport
    from dovetail.measure.inspection import InspectReport, inspect
    from dovetail.measure.model_profile import ModelProfile, profile
    from dovetail.measure.overview import ModelReport, model_report
    from dovetail.passes.check import check
    from dovetail.passes.encodings import change_encoding
    from dovetail.passes.inference_report import InferenceReport, infer_report
    from dovetail.passes.lora import attach_lora, detach_lora, merge_lora
    from dovetail.passes.merge import merge
    from dovetail.passes.quantization.report import QuantizeOptions, QuantizeReport
    from dovetail.passes.quantize import quantize
    from dovetail.passes.rebatch import rebatch
    from dovetail.passes.simplify import SimplifyReport, simplify
    from dovetail.passes.stateful import make_stateful, make_stateless
    from dovetail.passes.training import TrainingReport, training_step
    from dovetail.runtime.array_ops import concat, copy, split
    from dovetail.runtime.compilation import DeviceOptions, compile, plan, run
    from dovetail.runtime.interpreter.interpret import interpret
    from dovetail.runtime.program import Program
    from dovetail.runtime.random_inputs import Inputs

__version__ = "0.1.0"

# The application configures logging; without this handler Python would print dovetail's warnings on stderr.
logging.getLogger("dovetail").addHandler(logging.NullHandler())

__all__ = [
    "BisectResult",
    "Builder",
    "CostReport",
    "DType",
    "DeviceOptions",
    "Diagnostic",
    "Dim",
    "DovetailError",
    "EngineError",
    "EqualityProof",
    "FormatError",
    "Graph",
    "InferenceReport",
    "Inputs",
    "InspectReport",
    "LayerComparison",
    "Limits",
    "MapOptions",
    "MapReport",
    "Mapper",
    "Model",
    "ModelDiff",
    "ModelProfile",
    "ModelReport",
    "Node",
    "Op",
    "Program",
    "QuantizeOptions",
    "QuantizeReport",
    "ReduceReport",
    "ReshardReport",
    "RuleError",
    "SimplifyReport",
    "TrainingReport",
    "UnsupportedError",
    "Value",
    "attach_lora",
    "bisect",
    "change_encoding",
    "check",
    "check_certificate",
    "compare_layers",
    "compile",
    "concat",
    "copy",
    "cost",
    "detach_lora",
    "diff",
    "extract",
    "grad",
    "infer",
    "infer_report",
    "inspect",
    "interpret",
    "load",
    "make_stateful",
    "make_stateless",
    "map_rows",
    "merge",
    "merge_lora",
    "model_report",
    "plan",
    "profile",
    "prove",
    "quantize",
    "rebatch",
    "reduce",
    "reshard",
    "reshard_graph",
    "run",
    "save",
    "simplify",
    "split",
    "training_step",
]

_PUBLIC_MODULES = ("compat", "ngraph")
_MODULES = {
    "runtime.array_ops": "concat copy split",
    "laws.gradients": "grad",
    "data.rows.mapper": "Mapper",
    "data.rows.map_rows": "MapOptions MapReport map_rows",
    "measure.cost": "cost",
    "measure.cost_report": "CostReport",
    "measure.inspection": "InspectReport inspect",
    "measure.model_profile": "ModelProfile profile",
    "compare.values.bisect_result": "BisectResult",
    "compare.values.bisection": "bisect",
    "compare.values.layer_comparison": "LayerComparison",
    "compare.values.layers": "compare_layers",
    "compare.reduce.reduction": "ReduceReport reduce",
    "compare.diff.model_diff": "ModelDiff diff",
    "ir.dtypes": "DType",
    "compare.prove.certificate": "check_certificate",
    "compare.prove.equality_proof": "EqualityProof",
    "compare.prove.proof": "prove",
    "errors": "Diagnostic DovetailError EngineError FormatError RuleError UnsupportedError",
    "formats": "load save",
    "runtime.interpreter.interpret": "interpret",
    "ir.builder": "Builder",
    "ir.graph": "Graph Model Node Value",
    "ir.limits": "Limits",
    "ir.op": "Op",
    "data.tensors.recipe": "reshard_graph",
    "data.tensors.reshard": "ReshardReport reshard",
    "measure.overview": "ModelReport model_report",
    "ir.infer": "infer",
    "passes.inference_report": "InferenceReport infer_report",
    "runtime.compilation": "DeviceOptions compile plan run",
    "runtime.program": "Program",
    "runtime.random_inputs": "Inputs",
    "ir.symbolic": "Dim",
    "ir.extract": "extract",
    "passes.encodings": "change_encoding",
    "passes.lora": "attach_lora detach_lora merge_lora",
    "passes.merge": "merge",
    "passes.quantization.report": "QuantizeOptions QuantizeReport",
    "passes.quantize": "quantize",
    "passes.rebatch": "rebatch",
    "passes.simplify": "SimplifyReport simplify",
    "passes.stateful": "make_stateful make_stateless",
    "passes.training": "TrainingReport training_step",
    "passes.check": "check",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def _import_name(name: str) -> Any:
    """Import a public name or a submodule at its first use, so that ``import dovetail`` takes only milliseconds."""
    if name in _MODULE_OF:
        from dovetail.ir.host.gc_pause import pause_gc

        with pause_gc():
            value = getattr(importlib.import_module(f"dovetail.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"dovetail.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"dovetail.{name}":
                raise
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")


if not TYPE_CHECKING:
    # Type checkers, which do not see it, report names that the package lacks.
    __getattr__ = _import_name


def __dir__() -> list[str]:
    return sorted([*__all__, *_PUBLIC_MODULES, "__version__"])
