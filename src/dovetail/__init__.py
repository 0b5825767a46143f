"""One graph for ONNX and OpenVINO IR: load, check, run, convert and differentiate neural-network models."""

import logging

from dovetail import ops as ops
from dovetail.array_ops import concat, copy, split
from dovetail.autodiff import grad
from dovetail.dtypes import DType
from dovetail.errors import Diagnostic, DovetailError, EngineError, FormatError, RuleError, UnsupportedError
from dovetail.formats import load, save
from dovetail.interpreter.interpret import interpret
from dovetail.ir import printer as printer
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.limits import Limits
from dovetail.passes.infer import infer
from dovetail.program import Program, compile, plan, run
from dovetail.report import notebook as notebook
from dovetail.symbolic import Dim
from dovetail.validate import check

__version__ = "0.1.0"

# The application decides where warnings go; without this handler Python would print them on stderr.
logging.getLogger("dovetail").addHandler(logging.NullHandler())

__all__ = [
    "Builder",
    "DType",
    "Diagnostic",
    "Dim",
    "DovetailError",
    "EngineError",
    "FormatError",
    "Graph",
    "Limits",
    "Model",
    "Node",
    "Program",
    "RuleError",
    "UnsupportedError",
    "Value",
    "check",
    "compile",
    "concat",
    "copy",
    "grad",
    "infer",
    "interpret",
    "load",
    "plan",
    "run",
    "save",
    "split",
]
