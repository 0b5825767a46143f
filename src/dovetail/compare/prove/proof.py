"""Proof that two models are equal for all inputs."""

from __future__ import annotations

from os import PathLike

from dovetail.compare.prove.conditions import Conditions
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
    # Deferred for start-up time.
    from dovetail.formats import load

    first, second = (each if isinstance(each, Model) else load(each, limits=limits) for each in (a, b))
    conditions = Conditions(fit_sizes=fit_sizes)
    return prove_under(conditions, first, second, real=real, seed=seed, limits=limits, regions=regions)


def prove_under(
    conditions: Conditions,
    a: Model,
    b: Model,
    *,
    real: bool = True,
    seed: int = 0,
    limits: Limits | None = None,
    regions: bool = False,
) -> EqualityProof:
    """Prove two models equal under conditions, as :func:`prove` does.

    Raises FormatError [certificate.proof] for conditions that do not fit the models.
    """
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.search import ProofSearch

    with counting(limits or a.limits):
        models = conditions.prepare((a, b)).models
        proof = ProofSearch(models, real, seed, conditions.fit_sizes, regions=regions).run()
    proof.models, proof.conditions = (a, b), conditions
    return proof
