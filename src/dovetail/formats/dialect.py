"""What lift and lower need to know of a format: its spellings, its composed operators, how it writes values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.formats import op_mapping
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.op_mapping import Spelling
from dovetail.ir import op as operators
from dovetail.ir.op import Op

if TYPE_CHECKING:
    from dovetail.formats.exporter import Lowering
    from dovetail.formats.import_context import Lifting
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Node, Value

Lift = Callable[["Lifting"], "Value | list[Value] | Op | tuple[Op, list[Value | None]] | None"]
"""What a foreign node is: values written through the builder, an operator of ours on the node's own inputs or on others, or
(None) what the slot lines say."""
Lower = Callable[["Builder", "Node"], "Value | list[Value | None] | None"]
Emit = Callable[["Lowering", "Node"], "list[ForeignNode]"]
TypeCheck = Callable[[ForeignNode, "Sequence[Value | None]", "Sequence[Value]"], None]


@dataclass
class Dialect:
    """One format. ``lifts``: foreign operators that are several of ours, or need more than a slot line, by (domain, kind);
    ``lowers``: core operators rewritten into ones that the format can spell, by class; ``emits``: core operators whose foreign
    node no slot line can say; ``substitutes``: core operators rewritten only where the target's version of their own cannot say
    them. ``is_text``: attribute values are texts, numbers too. ``has_opsets``: one version of each operator is in force for a
    whole file. ``reasons``: why the format cannot say an operator, ours or another format's, by its name. ``arity``: how many
    inputs of a version of an operator do not repeat, and how many a node has at least, also where they are left out. ``domains``:
    core operators whose operator of the same name is in a domain of its own. ``first_version``: the oldest version of an operator
    (domain, kind). ``mend``: a node without what every reader passes over, which is noted."""

    name: str
    lines: Callable[[type[Op]], tuple[str, ...]]
    check_types: TypeCheck
    has_opsets: bool = False
    is_text: bool = False
    lifts: dict[tuple[str, str, int], Lift] = field(default_factory=dict)
    lowers: dict[str, Lower] = field(default_factory=dict)
    emits: dict[str, Emit] = field(default_factory=dict)
    substitutes: dict[str, Lower] = field(default_factory=dict)
    says: dict[str, Callable[[Op, int], bool]] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    spell: Callable[[Any], Any] = lambda value: value
    reasons: dict[str, str] = field(default_factory=dict)
    arity: Callable[[str, str, int], tuple[int, int]] = lambda domain, kind, version: (0, 0)
    first_version: Callable[[str, str], int | None] = lambda domain, kind: None
    mend: Callable[[ForeignNode, Callable[[DovetailError], None]], ForeignNode] = lambda node, deviate: node
    _readers: dict[tuple[str, str, int], tuple[Spelling, ...]] | None = None
    _writers: dict[str, tuple[Spelling, ...]] = field(default_factory=dict)

    def lift(self, kind: str, *versions: int, domain: str = "") -> Callable[[Lift], Lift]:
        """Register how ``kind`` in these versions is lifted."""

        def register(function: Lift) -> Lift:
            for version in versions:
                self.lifts[domain, kind, version] = function
            return function

        return register

    def lower(self, *names: str) -> Callable[[Lower], Lower]:
        """Register how core operators of these names are rewritten before they are spelled."""

        def register(function: Lower) -> Lower:
            self.lowers.update(dict.fromkeys(names, function))
            return function

        return register

    def substitute(self, *names: str) -> Callable[[Lower], Lower]:
        """Register how core operators of these names are rewritten where the target's versions cannot say them."""

        def register(function: Lower) -> Lower:
            self.substitutes.update(dict.fromkeys(names, function))
            return function

        return register

    def emit(
        self, *names: str, says: Callable[[Op, int], bool] = lambda op, version: True, domain: str = ""
    ) -> Callable[[Emit], Emit]:
        """Register how core operators of these names are spelled; ``says``: whether a version of the target's own says one, which
        is asked where there is a substitute, or where the operator is in a ``domain`` other than the format's first."""

        def register(function: Emit) -> Emit:
            self.emits.update(dict.fromkeys(names, function))
            self.says.update(dict.fromkeys(names, says))
            if domain:
                self.domains.update(dict.fromkeys(names, domain))
            return function

        return register

    def readers(self, node: ForeignNode) -> tuple[Spelling, ...]:
        """The spellings that may read ``node``, in the order to try; none where the operator or its version is unknown to us."""
        if self._readers is None:
            found: dict[tuple[str, str, int], tuple[Spelling, ...]] = {}
            for cls in operators.REGISTRY.values():
                for line in self.lines(cls):
                    spelling = op_mapping.parse(cls, line)
                    if spelling.is_written_only:
                        continue
                    for version in spelling.versions:
                        key = (spelling.domain, spelling.kind, version)
                        found[key] = (*found.get(key, ()), spelling)
            self._readers = found
        return self._readers.get((node.domain, node.kind, node.version), ())

    def writers(self, op: Op) -> tuple[Spelling, ...]:
        """The spellings of ``op``'s class, the preferred one first."""
        name = type(op).__name__
        found = self._writers.get(name)
        if found is None:
            found = tuple(op_mapping.parse(type(op), line) for line in reversed(self.lines(type(op))))
            self._writers[name] = found
        return found


__all__ = ["Dialect", "Emit", "Lift", "Lower"]
