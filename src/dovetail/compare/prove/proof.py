"""Proof that two models are equal for all inputs."""

from __future__ import annotations

from os import PathLike

from dovetail.compare.prove.equality_proof import EqualityProof
from dovetail.ir.graph import Model
from dovetail.ir.limits import Limits, counting
from dovetail.ir.suggestions import check_keywords


@check_keywords
def prove(
    a: Model | str | PathLike[str],
    b: Model | str | PathLike[str],
    *,
    real: bool = False,
    seed: int = 0,
    limits: Limits | None = None,
    fit_sizes: bool = False,
    regions: bool = True,
) -> EqualityProof:
    """Prove that two models, or files of either format, are equal for all inputs and all sizes of open dimensions.

    Inputs and outputs are paired by name. Models are equal if the interpreter computes the same bits with row-major operands,
    wherever both models are defined. With ``real``, equality over the real numbers also counts. Results then differ by rounding,
    and by more where large numbers cancel: (x + 1e30) - 1e30 equals x.

    Parts that are not proved equal are cut into the smallest regions, which run on inputs drawn from ``seed``. With ``fit_sizes``
    a size that one model fixes and the other leaves open is fixed in both, and is in the ``sizes`` of the proof. Without
    ``regions`` nothing is cut or run.

    Models are "different", with a note, if an input or output has no counterpart, or if types of inputs or the states differ.

    Raises FormatError [file.changed], and the errors of :func:`load`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Negative(b.Negative(b.input("x", "f32", ("n",)))))
    >>> dovetail.prove(b.model, dovetail.simplify(b.model)).verdict
    'bits'
    """
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.search import ProofSearch
    from dovetail.formats import load

    models = tuple(each if isinstance(each, Model) else load(each, limits=limits) for each in (a, b))
    with counting(limits or models[0].limits):
        return ProofSearch((models[0], models[1]), real, seed, fit_sizes, regions=regions).run()
