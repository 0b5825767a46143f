"""The search for a proof: terms that keep bits, terms over the real numbers, and the regions that remain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from time import monotonic

from dovetail.compare.prove.equality_proof import EqualityProof
from dovetail.compare.prove.model_terms import Numbered, number_terms
from dovetail.compare.prove.real_terms import RealNumbered, real_terms
from dovetail.compare.prove.regions import differ_in_a_run, find_regions
from dovetail.compare.prove.symbols import interface_differences
from dovetail.ir.graph import Model, Value

SECONDS = 60.0
"""Maximum seconds of a proof with its runs. After a third of this time, no rules are applied to further operators."""


class ProofSearch:
    """ProofSearch is one search for a proof: by terms that keep bits, then by terms over the real numbers, then in regions."""

    def __init__(self, models: tuple[Model, Model], real: bool, seed: int, fit_sizes: bool, *, regions: bool = True) -> None:
        self._models = models
        self._is_real = real
        self._seed = seed
        self._fit_sizes = fit_sizes
        self._finds_regions = regions
        self._start = monotonic()
        self._notes: list[str] = []

    def run(self) -> EqualityProof:
        deadline = self._start + SECONDS / 3
        exact = number_terms(self._models, deadline=deadline, fit_sizes=self._fit_sizes)
        pairs = self._pair_outputs(exact)
        if not exact.is_complete:
            self._notes.append(f"the terms took more than {SECONDS / 3:.0f} s: no rules are applied to later operators")
        is_comparable = not self._differences
        sizes = exact.interface.sizes
        if is_comparable and are_equal(exact.terms, pairs):
            return EqualityProof("bits", notes=self._notes, sizes=sizes)
        terms = exact.terms
        if self._is_real:
            over_reals = real_terms(exact, deadline=deadline)
            terms = over_reals.terms
            if is_comparable and are_equal(terms, pairs):
                if over_reals.table.has_near_constants() and differ_in_a_run(
                    self._models, pairs, self._seed, self._start + SECONDS
                ):
                    notes = [
                        *self._notes,
                        "constants are equal up to rounding, but results of a run differ: large numbers cancel",
                    ]
                    return EqualityProof("open", notes=notes, sizes=sizes)
                rewrites = rewrites_of(exact, over_reals, pairs)
                return EqualityProof("real", rewrites, notes=self._notes, sizes=sizes)
        proof = EqualityProof("open", notes=[*self._differences, *self._notes], sizes=sizes)
        proof.frontier = operator_pairs(*first_unequal(terms, pairs))
        if self._differences:
            proof.verdict = "different"
        if not self._finds_regions:
            return proof
        deadline = self._start + SECONDS
        proof.regions, notes = find_regions(self._models, terms, pairs, self._seed, deadline, self._is_real, self._fit_sizes)
        proof.notes += notes
        if any(region.is_different for region in proof.regions):
            proof.verdict = "different"
        return proof

    def _differ_in_a_run(self, pairs: list[tuple[Value, Value]]) -> bool:
        return differ_in_a_run(self._models, pairs, self._seed, self._start + SECONDS)

    def _pair_outputs(self, exact: Numbered) -> list[tuple[Value, Value]]:
        """Pair the outputs by name, and collect the differences of the interfaces."""
        first, second = ({value.name: value for value in model.outputs} for model in self._models)
        self._differences = interface_differences(self._models, exact.interface)
        return [(value, second[name]) for name, value in first.items() if name in second]


def are_equal(terms: Sequence[dict[int, Value]], pairs: Sequence[tuple[Value, Value]]) -> bool:
    """Return whether both values of every pair have the same term."""
    return all(terms[0][id(a)] is terms[1][id(b)] for a, b in pairs)


def rewrites_of(exact: Numbered, real: RealNumbered, pairs: Sequence[tuple[Value, Value]]) -> list[str]:
    """Return the names of the rewrites of those exact terms on which the outputs of exactly one model depend."""
    used: set[str] = set()
    reached = _reach_outputs(exact.terms, pairs)
    shared = reached[0].keys() & reached[1].keys()
    for each in reached:
        for key in each.keys() - shared:
            used |= real.rewrites.get(key, frozenset())
    return sorted(used)


def _reach_outputs(terms: Sequence[dict[int, Value]], pairs: Sequence[tuple[Value, Value]]) -> list[dict[int, Value]]:
    """Return, for each model, the terms on which its outputs depend, by id."""
    results = []
    for index, each in enumerate(terms):
        found: dict[int, Value] = {}
        stack = [each[id(pair[index])] for pair in pairs]
        while stack:
            value = stack.pop()
            if id(value) in found:
                continue
            found[id(value)] = value
            if value.node is not None:
                stack.extend(x for x in value.node.inputs if x is not None)
        results.append(found)
    return results


def first_unequal(terms: Sequence[dict[int, Value]], pairs: Sequence[tuple[Value, Value]]) -> list[list[Value]]:
    """Return, for each model, the first terms on which its outputs depend, and which the other model does not have."""
    reached = _reach_outputs(terms, pairs)
    shared = reached[0].keys() & reached[1].keys()
    return [
        [
            value
            for key, value in each.items()
            if key not in shared and (value.node is None or all(x is None or id(x) in shared for x in value.node.inputs))
        ]
        for each in reached
    ]


def operator_pairs(first: Sequence[Value], second: Sequence[Value]) -> list[tuple[str, str]]:
    """Return pairs of the operators at the first unequal terms of both models."""
    names = [list(dict.fromkeys(type(x.node.op).__name__ if x.node else "input" for x in values)) for values in (first, second)]
    return list(zip_longest(names[0], names[1], fillvalue="-"))
