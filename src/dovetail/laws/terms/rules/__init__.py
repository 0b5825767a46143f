"""Rules of the table of terms, by operator class: exact ones keep all bits, the others are equal over the real numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dovetail.ir.op import Op
from dovetail.laws.terms.rules.arithmetic import ARITHMETIC
from dovetail.laws.terms.rules.decompositions import decomposition_of
from dovetail.laws.terms.rules.movement import MOVEMENT
from dovetail.laws.terms.rules.pointwise import POINTWISE
from dovetail.laws.terms.rules.pools import POOLS
from dovetail.laws.terms.rules.real_arithmetic import REAL_ARITHMETIC
from dovetail.laws.terms.rules.reductions import REDUCTIONS
from dovetail.laws.terms.rules.slices import SLICES
from dovetail.laws.terms.terms import Rule
from dovetail.ops.elementwise.binary import Add, Multiply


def _join(*tables: dict[type[Op], tuple[Rule, ...]]) -> dict[type[Op], list[tuple[str, Rule]]]:
    joined: dict[type[Op], list[tuple[str, Rule]]] = {}
    for table in tables:
        for kind, rules in table.items():
            joined.setdefault(kind, []).extend(("", rule) for rule in rules)
    return joined


_EXACT = _join(MOVEMENT, SLICES, POINTWISE, ARITHMETIC, POOLS, REDUCTIONS)


def exact_rules(kind: type[Op]) -> Sequence[tuple[str, Rule]]:
    """Return the rules of an operator class that keep the bits of every result, in the order in which they are tried."""
    return _EXACT.get(kind, ())


def real_rules(allowed: Collection[str] | None = None) -> Callable[[type[Op]], Sequence[tuple[str, Rule]]]:
    """Return the rules by class: rewrites over the real numbers, then exact ones.

    ``allowed`` has the names of the rewrites that may be used; None: all.
    """

    known: dict[type[Op], Sequence[tuple[str, Rule]]] = {}

    def rules_of(kind: type[Op]) -> Sequence[tuple[str, Rule]]:
        if kind in known:
            return known[kind]
        decomposition = decomposition_of(kind)
        named = [*([decomposition] if decomposition else []), *REAL_ARITHMETIC.get(kind, ())]
        chosen = [(name, rule) for name, rule in named if allowed is None or name in allowed]
        exact = list(exact_rules(kind))
        # Sums and products are put into order after their operands have their shortest form, before they are entered.
        behind = len(exact) - 1 if kind in (Add, Multiply) else 0
        rules = known[kind] = [*exact[:behind], *chosen, *exact[behind:]]
        return rules

    return rules_of


__all__ = ["exact_rules", "real_rules"]
