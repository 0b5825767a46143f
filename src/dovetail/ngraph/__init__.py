"""nGraph's operator interface, implemented on the Builder: nodes with validation, constant folding and gradients.

``Reshape``, ``Slice`` and ``Split`` are nGraph's v0; ``v1`` holds ``Reshape``, ``Split`` and ``VariadicSplit``. A Function is
an ordinary Model for all other parts of dovetail. Source: nGraph's operation documents (Concat) and its operators of versions 0
and 1.
"""

from dovetail.ngraph.function import Adjoints, Function, adjoints
from dovetail.ngraph.nodes import Constant, Node, Output, Parameter
from dovetail.ngraph.operators import Add, Concat, Multiply, Reshape, Slice, Split, Subtract, VariadicSplit, v0, v1

__all__ = [
    "Add",
    "Adjoints",
    "Concat",
    "Constant",
    "Function",
    "Multiply",
    "Node",
    "Output",
    "Parameter",
    "Reshape",
    "Slice",
    "Split",
    "Subtract",
    "VariadicSplit",
    "adjoints",
    "v0",
    "v1",
]
