"""ShardingPlan: the split of a program's inputs and weights over a mesh of devices, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from dovetail.errors import EngineError, printable

Spec: TypeAlias = tuple[Any, ...]
"""The arguments of jax.sharding.PartitionSpec: for each leading axis the name of a mesh axis, a tuple of names, or None."""


class Sharding(NamedTuple):
    """Sharding is the split of one tensor: its name, kind (input, weight, value), shape, spec and reason."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    spec: Spec
    reason: str


class ShardingPlan(Sequence[Sharding]):
    """ShardingPlan holds the shardings of a program over ``mesh``, a dict of axis sizes by name.

    ``plan["name"]`` is the spec of a tensor.
    """

    def __init__(self, mesh: Mapping[str, int], rows: Sequence[Sharding]) -> None:
        self.mesh = dict(mesh)
        self.rows = list(rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for row in self.rows:
                if row.name == key:
                    return row.spec
            raise EngineError("name.unknown", f"the plan has no tensor {key!r}")
        return self.rows[key]

    def __iter__(self) -> Iterator[Sharding]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self) -> list[tuple[str, str, str, str, str]]:
        """Return the cells of a table: tensor, kind, shape, PartitionSpec, reason."""
        return [(row.name, row.kind, _shape_text(row.shape), spec_text(row.spec), row.reason) for row in self.rows]

    def __repr__(self) -> str:
        mesh = ", ".join(f"{name}={size}" for name, size in self.mesh.items())
        rows = [("tensor", "kind", "shape", "PartitionSpec", "reason"), *self.cells()]
        widths = [max(len(row[index]) for row in rows) for index in range(4)]
        lines = ["  ".join([*map(str.ljust, row[:4], widths), row[4]]).rstrip() for row in rows]
        return printable_lines([f"mesh {mesh}", *lines])


def printable_lines(lines: Sequence[str]) -> str:
    return "\n".join(map(printable, lines))


def spec_text(spec: Spec) -> str:
    """Return the text of a spec in JAX's notation: P(None, 'model')."""
    return f"P({', '.join(map(repr, spec))})"


def _shape_text(shape: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def override(plan: ShardingPlan, changes: Mapping[str, Any], values: Mapping[str, tuple[Any, ...]]) -> ShardingPlan:
    """Return the plan with specs replaced by ``changes``, a dict from name patterns (``*`` matches any text) to specs.

    The last matching pattern wins. ``values`` maps names of further tensors, for which a change may set a spec too, to shapes.
    Raises EngineError [name.unknown] for a pattern that matches no tensor, [sharding.spec] for an unsuitable spec.
    """
    rows = {row.name: row for row in plan}
    for pattern, spec in changes.items():
        names = [name for name in rows if fnmatchcase(name, pattern)]
        for name in values:
            if name not in rows and fnmatchcase(name, pattern):
                rows[name] = Sharding(name, "value", values[name], (), "")
                names.append(name)
        if not names:
            raise EngineError("name.unknown", f"no tensor of the model has a name like {pattern!r}")
        for name in names:
            checked = check_spec(name, rows[name].shape, spec, plan.mesh)
            rows[name] = rows[name]._replace(spec=checked, reason=f"requested by {pattern!r}")
    return ShardingPlan(plan.mesh, list(rows.values()))


def check_spec(name: str, shape: Sequence[Any], spec: Any, mesh: Mapping[str, int]) -> Spec:
    """Check a spec against a shape and a mesh, and return it as a tuple. Raises EngineError [sharding.spec]."""
    parts = () if spec is None else (spec,) if isinstance(spec, str) else tuple(spec)
    if len(parts) > len(shape):
        message = f"the spec of {name!r} must have at most {len(shape)} axes, the rank of the tensor, got {len(parts)}"
        raise EngineError("sharding.spec", message)
    used: list[str] = []
    for size, part in zip(shape, parts, strict=False):
        axes = () if part is None else (part,) if isinstance(part, str) else tuple(part)
        count = 1
        for axis in axes:
            if axis not in mesh or axis in used:
                known = ", ".join(map(repr, mesh))
                raise EngineError(
                    "sharding.spec", f"the spec of {name!r} must name each axis of the mesh ({known}) at most once, got {axis!r}"
                )
            used.append(axis)
            count *= mesh[axis]
        if isinstance(size, int) and size % count:
            raise EngineError("sharding.spec", f"the split axis of {name!r} (size {size}) must be a multiple of {count} devices")
    return parts
