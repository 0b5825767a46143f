"""EqualityProof: the result of a proof that two models are equal for all inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dovetail.compare.prove.conditions import Conditions
from dovetail.compare.prove.unequal_region import UnequalRegion
from dovetail.errors import RuleError, printable
from dovetail.ir.graph import Model

if TYPE_CHECKING:
    from dovetail.compare.rounding.error_bounds import RoundingBound
    from dovetail.runtime.random_inputs import Inputs

Verdict = Literal["bits", "real", "open", "different"]
REAL = (
    "equal over the real numbers for all inputs and sizes; floats differ by rounding, and by more where large numbers cancel: "
    "(x + 1e30) - 1e30 equals x, and is computed as 0"
)
"""The meaning of the verdict "real", wherever it is printed."""


@dataclass(slots=True, repr=False)
class EqualityProof:
    """EqualityProof is the result of :func:`prove`.

    ``verdict`` is one of:

    - "bits": the same bits for all inputs
    - "real": equal as formulas of real numbers; results differ by rounding, and by more where large numbers cancel, as in
      (x + 1e30) - 1e30
    - "open": not proved
    - "different": inputs, outputs or states differ, or a part was run and its results differ by more than rounding

    ``rewrites`` are the names of the rewrites over the real numbers that the proof uses. ``regions`` are the smallest parts that
    are not proved equal; ``notes`` list the limits of the result. ``frontier`` pairs the operators of both models at the first
    values that the other model does not have. ``sizes`` are, for each model, the open sizes by symbol that ``fit_sizes`` fixed:
    the models are equal at these sizes.
    """

    verdict: Verdict
    rewrites: list[str] = field(default_factory=list)
    regions: list[UnequalRegion] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    frontier: list[tuple[str, str]] = field(default_factory=list)
    sizes: list[dict[str, int]] = field(default_factory=list)
    models: tuple[Model, Model] | None = field(default=None, repr=False, compare=False)
    conditions: Conditions = field(default_factory=Conditions, repr=False, compare=False)

    @property
    def is_proved(self) -> bool:
        """True if the models are equal for all inputs, in bits or as formulas of real numbers."""
        return self.verdict in ("bits", "real")

    def __repr__(self) -> str:
        texts = {
            "bits": "proved equal in all bits",
            "real": f"proved {REAL}; by {', '.join(self.rewrites) or 'congruence'}",
            "open": f"not proved equal: {len(self.regions)} regions remain",
            "different": f"different in {len(self.regions)} regions" if self.regions else "different",
        }
        return printable("; ".join([texts[self.verdict], *self.notes]).join("<>"))

    def certificate(self) -> dict[str, Any]:
        """Return a certificate as JSON data, which :func:`dovetail.check_certificate` checks without searching.

        Raises RuleError [argument.conflict] without a proof, and [certificate.files] for a model that is not from a file.
        """
        # Deferred for start-up time: most proofs are not written.
        from dovetail.compare.prove.certificate import write_certificate

        return write_certificate(self)

    def bound_rounding(
        self, inputs: Mapping[str, Any] | Inputs | None = None, *, ranges: Mapping[str, tuple[float, float]] | None = None
    ) -> RoundingBound:
        """Bound the difference between the results of both models in floats, beside the measured difference.

        The bound holds for ``inputs`` (default: random inputs), or for all inputs in ``ranges``, which map names of inputs to the
        smallest and the largest element. Without both, the range of an image is that of the file's metadata
        (``Image.NominalPixelRange`` of ONNX). Each operation rounds once, in the type of its result; sums are in any order.

        Raises RuleError [argument.conflict] if the models are not proved equal, RuleError [argument.value] for a range that
        is not ordered or whose input is no float tensor, and the errors of a run.

        >>> with dovetail.Builder() as b: y = b.output("y", (b.input("x", "f32", (2,)) * 3.0) * 5.0)
        >>> with dovetail.Builder() as c: y = c.output("y", c.input("x", "f32", (2,)) * 15.0)
        >>> found = dovetail.prove(b.model, c.model, real=True).bound_rounding({"x": np.array([0.1, 0.7], np.float32)})
        >>> found.outputs[0].measured <= found.outputs[0].bound < 3e-6
        True
        """
        # Deferred for start-up time: most proofs are not bounded.
        from dovetail.compare.rounding.error_bounds import bound_rounding

        if self.models is None or not self.is_proved:
            raise RuleError("argument.conflict", "a bound of rounding needs models that are proved equal")
        return bound_rounding(self.models, inputs, ranges)
