"""The same elements under another shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dims, dtypes
from dovetail.errors import RuleError
from dovetail.op import Op, Windows
from dovetail.ops.source import whole
from dovetail.types import INT64_MAX, Tensor, View, total


def _plain(item: Any) -> Any:
    return item if isinstance(item, dims.Dim) else int(item)


class Reshape(
    Op,
    sig="x: T, target!: I -> y: T",
    onnx=(
        "Reshape-1(x; shape:target, consumed_inputs:_?)",
        "Reshape-5,13(x, target)",
        "Reshape-14,19,21,23,24,25(x, target; allowzero~not:copy_zeros=0)",
    ),
    openvino="Reshape-1(x, target; special_zero:copy_zeros | empty=cancel/refuse)",
):
    """The elements of ``x`` in row-major order under the shape ``target``, a vector.

    With ``copy_zeros`` a 0 copies the input's dimension at its index, which has to be below the rank; otherwise it is a size of zero.
    At most one -1 is computed so that the volumes agree. ``empty`` rules on -1 where the other sizes multiply to 0: ``refuse``;
    ``cancel`` divides by the sizes that are not copied ([0, 3] by [0, -1] is [0, 3]); ``zero`` makes it 0. Where a literal 0 stands
    beside -1, every choice refuses. Sources: ONNX Reshape 1 to 25 (allowzero), OpenVINO Reshape-1 (special_zero), nGraph Reshape v1.
    """

    copy_zeros: bool = True
    empty: str = "refuse"

    def shape(self, x: Any, target: Any) -> Any:
        self._check_target(target)
        if target.value is None:
            return None
        wanted = [_plain(item) for item in target.value]
        negative = [size for size in wanted if isinstance(size, int) and size < -1]
        if negative:
            raise RuleError("reshape.target", f"size {negative[0]} in the target is below -1")
        free = [place for place, size in enumerate(wanted) if isinstance(size, int) and size == -1]
        if len(free) > 1:
            raise RuleError("reshape.target", f"{len(free)} sizes of -1 in the target; at most one can be computed")
        copied = [place for place, size in enumerate(wanted) if isinstance(size, int) and size == 0] if self.copy_zeros else []
        shape = x.shape
        if shape is not None:
            for place in copied:
                if place >= len(shape):
                    raise RuleError("reshape.target", f"0 at index {place} copies from a rank of {len(shape)}")
        sizes: list[Any] = [(None if shape is None else shape[place]) if place in copied else size for place, size in enumerate(wanted)]
        vague = [place for place, size in enumerate(sizes) if self._is_vague(wanted[place])]
        if free and not self.copy_zeros and any(isinstance(size, int) and size == 0 for size in wanted):
            raise RuleError("reshape.target", "a size of 0 and one of -1 in the same target")
        if shape is None or None in sizes:
            return tuple(None if place in free or place in vague else size for place, size in enumerate(sizes))
        if vague:
            return self._settle(shape, sizes, free, vague)
        if not free:
            self._check_volume(shape, sizes)
            return tuple(sizes)
        sizes[free[0]] = self._computed(shape, sizes, free[0], copied)
        return tuple(sizes)

    def _check_target(self, target: Any) -> None:
        if target.shape is not None and len(target.shape) != 1:
            raise RuleError("reshape.target", f"the target should be a vector, not of rank {len(target.shape)}")

    def _is_vague(self, size: Any) -> bool:
        """Whether an element of the target may turn out to be a special value."""
        if isinstance(size, int):
            return False
        low = dims.bounds(size)[0]
        return low is None or low < 0

    def _settle(self, shape: Any, sizes: list[Any], free: list[int], vague: list[int]) -> Any:
        """Sizes that only run time knows stay open; one alone follows from the volume."""
        if len(vague) == 1 and not free:
            rest = total(size for place, size in enumerate(sizes) if place not in vague)
            found = dims.exact_quotient(total(shape), rest)
            if found is not None and dims.equal(rest, 0) is False:
                return tuple(found if place in vague else size for place, size in enumerate(sizes))
        return tuple(None if place in vague or place in free else size for place, size in enumerate(sizes))

    def _check_volume(self, shape: Any, sizes: list[Any]) -> None:
        ours, theirs = total(shape), total(sizes)
        if dims.equal(ours, theirs) is False:
            raise RuleError("reshape.volume", f"{ours} elements do not make a shape of {theirs}")

    def _computed(self, shape: Any, sizes: list[Any], free: int, copied: list[int]) -> Any:
        rest = [size for place, size in enumerate(sizes) if place != free]
        literal = total(size for place, size in enumerate(sizes) if place != free and place not in copied)
        if isinstance(literal, int) and literal == 0:
            raise RuleError("reshape.target", "-1 beside a size of 0 has no one answer")
        volume, known = total(shape), total(rest)
        if isinstance(known, int) and known == 0 and self.empty == "refuse":
            raise RuleError("reshape.target", f"-1 beside sizes that multiply to 0, from {list(shape)}")
        if self.empty == "zero" and isinstance(known, int) and known == 0:
            return 0
        # The dimensions that were copied stand on both sides and cancel, also when they are 0.
        left = total(size for place, size in enumerate(shape) if place not in copied)
        if isinstance(left, int) and isinstance(literal, int):
            if left % literal and not (isinstance(volume, int) and volume == 0 and self.empty != "cancel"):
                raise RuleError("reshape.volume", f"{volume} elements do not divide by {known}")
            return left // literal
        quotient = dims.exact_quotient(left, literal)
        if quotient is not None:
            return quotient
        if dims.bounds(literal)[0] in (None, 0):
            return None
        return left // literal

    def canonical(self, x: Any, target: Any) -> Op:
        """``refuse`` says the same as any other choice unless a copied 0 stands beside -1."""
        if self.empty == "refuse" or target.value is None:
            return self
        wanted = [_plain(item) for item in target.value]
        special = [size for size in wanted if isinstance(size, int) and size <= 0]
        plain = len(set(special)) < 2 and not any(self._is_vague(size) for size in wanted)
        known = x.shape is not None and all(
            dims.equal(size, 0) is False for size, want in zip(x.shape, wanted, strict=False) if isinstance(want, int) and want == 0
        )
        return self.with_(empty="refuse") if plain or known else self

    def evaluate(self, xp: Any, x: Any, target: Any) -> Any:
        seen = View(Tensor(None, tuple(x.shape)))
        vector = np.asarray(target)
        if vector.dtype != object and vector.dtype != np.int64:
            vector = vector.astype(object)
        sizes = self.shape(seen, View(Tensor(dtypes.i64, vector.shape), vector))
        if sizes is None or None in sizes:
            raise dims.Inexact
        return xp.reshape(x, tuple(sizes))

    def vjp(self, b: Any, g: Any, y: Any, x: Any, target: Any) -> Any:
        from dovetail.build import shape_value

        return [b.Reshape(g, shape_value(b, x), copy_zeros=False), None]

    def windows(self, x: Any, target: Any) -> Windows:
        return whole(x)


__all__ = ["INT64_MAX", "Reshape"]
