"""Symbolic dimensions: integer expressions of unknowns, and an array namespace for shape values with such elements.

A :class:`Dim` is a polynomial with integer coefficients over atoms. An atom is a symbol (a name with bounds) or an application
of floor division, modulo, minimum, maximum or broadcast that does not simplify. A result without unknowns is an ``int``.

Division and modulo round towards minus infinity, as in Python. A comparison function returns True, False, or None for
undecided; an operator that needs a truth value raises :class:`Inexact` instead of None.

An expression beyond the limits in ``algebra`` raises :class:`Inexact` too, which bounds time and memory.
"""

from dovetail.ir.symbolic.algebra import Dim, Inexact, Size, name_of, product, symbol
from dovetail.ir.symbolic.array_namespace import xp
from dovetail.ir.symbolic.arrays import Array, SymbolicArray, fits
from dovetail.ir.symbolic.broadcasting import broadcast_sizes
from dovetail.ir.symbolic.compare import bounds, equal, less, less_equal, merge_bounds
from dovetail.ir.symbolic.division import ceil_divide, exact_quotient, quotient_of_nonzero
from dovetail.ir.symbolic.elementwise import floor_divide_by_nonzero
from dovetail.ir.symbolic.min_max import maximum, minimum
from dovetail.ir.symbolic.parse_print import parse
from dovetail.ir.symbolic.substitute import atoms, evaluate, substitute, symbols

__all__ = [
    "Array",
    "Dim",
    "Inexact",
    "Size",
    "SymbolicArray",
    "atoms",
    "bounds",
    "broadcast_sizes",
    "ceil_divide",
    "equal",
    "evaluate",
    "exact_quotient",
    "fits",
    "floor_divide_by_nonzero",
    "less",
    "less_equal",
    "maximum",
    "merge_bounds",
    "minimum",
    "name_of",
    "parse",
    "product",
    "quotient_of_nonzero",
    "substitute",
    "symbol",
    "symbols",
    "xp",
]
