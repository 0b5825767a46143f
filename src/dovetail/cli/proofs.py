"""Options and output of proofs of equality."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.output import narrate, say_json, table, write_file
from dovetail.compare.prove.conditions import Conditions
from dovetail.compare.prove.equality_proof import REAL

if TYPE_CHECKING:
    from dovetail.compare.prove.equality_proof import EqualityProof
    from dovetail.compare.rounding.error_bounds import RoundingBound
    from dovetail.ir.graph import Model

VERDICTS = {
    "bits": "proved equal: the same bits for all inputs and sizes",
    "real": f"proved {REAL}",
    "open": "not proved equal for all inputs and sizes",
    "different": "different",
}
MAX_LABELS = 3
"""The maximum number of nodes of a region that a row of the table names."""


def verdict_text(verdict: str, rewrites: Sequence[str] = (), runs: Sequence[Mapping[str, int]] = ()) -> str:
    """Return one line: what is proved and by which rewrites, or that nothing is, and at which sizes runs agree.

    ``runs``: the sizes of open dimensions of each run on seeded inputs in which the results agree.
    """
    text = VERDICTS[verdict] + (f"; rewrites: {', '.join(rewrites)}" if rewrites else "")
    if not runs:
        return text
    sizes = "; ".join(", ".join(f"{name}={size}" for name, size in run.items()) or "the sizes of the model" for run in runs)
    return f"{text}; {'only ' if verdict == 'open' else ''}runs on seeded inputs agree, at {sizes}"


def prove_files(
    a: Model,
    b: Model,
    *,
    real: bool,
    seed: int,
    certificate: str | None,
    as_json: bool,
    names: tuple[str, str],
    bounded: tuple[Sequence[str], Sequence[str]] | None = None,
) -> int:
    """Prove two models equal and print the answer; return the exit code: 0 proved, 1 not proved.

    ``bounded``: the inputs and ranges, as texts, for which the difference by rounding is bounded; None: it is not.
    """
    from dovetail.cli.arrays import ranges_of, read_files
    from dovetail.compare.prove.proof import prove
    from dovetail.runtime.random_inputs import Inputs

    proof = prove(a, b, real=real, seed=seed)
    if certificate is not None:
        write_certificate(certificate, proof)
    rounding = None
    if bounded is not None and proof.is_proved:
        files, pairs = bounded
        given = Inputs(read_files(a, files), seed=seed) if files or seed else None
        rounding = proof.bound_rounding(given, ranges=ranges_of(pairs, "--range", float) or None)
    if as_json:
        more = {} if rounding is None else {"rounding": asdict(rounding)}
        say_json("diff", first=names[0], second=names[1], **as_data(proof), **more)
    else:
        say_proof(proof)
        if rounding is not None:
            say_rounding(rounding)
    return 0 if proof.is_proved else 1


def say_rounding(found: RoundingBound) -> None:
    """Print the bounds of rounding, beside the measured differences."""
    for note in found.notes:
        narrate(note)
    for name, (low, high) in found.ranges.items():
        narrate(f"bounds for all elements of {name!r} from {low:g} to {high:g}; one of them was run")
    texts = [("unknown" if each is None else f"{each:.3g}") for row in found.outputs for each in (row.expected, row.bound)]
    table(
        ("output", "largest magnitude", "measured difference", "expected, at most", "bound"),
        [
            (row.name, f"{row.magnitude:.3g}", f"{row.measured:.3g}", expected, bound)
            for row, expected, bound in zip(found.outputs, texts[::2], texts[1::2], strict=True)
        ],
    )


def write_certificate(path: str, proof: EqualityProof) -> None:
    """Write the certificate of a proof; print on stderr that none is written where nothing is proved."""
    if proof.is_proved:
        write_file(path, json.dumps(proof.certificate()))
    else:
        narrate(f"{path} was not written: nothing is proved")


def prove_conversion(
    source: Model, target: Model, *, is_alone: bool, certificate: str | None = None, conditions: Conditions | None = None
) -> EqualityProof:
    """Prove a changed model equal to its source, and print the answer on stderr. ``is_alone``: no comparing run follows.

    ``certificate`` is the path of the certificate to write, if any; the models are compared under ``conditions``.
    """
    from dovetail.compare.prove.proof import prove_under

    proof = prove_under(conditions or Conditions(), source, target, regions=is_alone)
    narrate(f"{_conditions_text(proof)}{verdict_text(proof.verdict, proof.rewrites)}")
    for note in proof.notes:
        narrate(note)
    for region in proof.regions:
        narrate(f"not proved: {_labels(region.nodes_a)} / {_labels(region.nodes_b)}")
    if certificate is not None:
        write_certificate(certificate, proof)
    return proof


def _conditions_text(proof: EqualityProof) -> str:
    """Return the conditions of a proof as the beginning of a line; empty without conditions."""
    sizes = sorted({f"{name}={number}" for fixed in proof.sizes for name, number in fixed.items()})
    parts = [f"at {', '.join(sizes)}"] if sizes else []
    if any(proof.conditions.states):
        parts.append("in each step from empty states")
    if rounded := proof.conditions.rounded:
        largest = max(rounding.bound for rounding in rounded.values())
        parts.append(f"with {len(rounded)} rounded constants, each element by at most {largest:.3g}")
    return f"{', '.join(parts)}: " if parts else ""


def as_data(proof: EqualityProof) -> dict[str, Any]:
    """Return a proof as JSON data."""
    regions = [
        {
            "nodes_a": region.nodes_a,
            "nodes_b": region.nodes_b,
            "inputs": region.inputs,
            "outputs": region.outputs,
            "difference": region.difference,
        }
        for region in proof.regions
    ]
    return {"verdict": proof.verdict, "rewrites": proof.rewrites, "regions": regions, "notes": proof.notes}


def say_proof(proof: EqualityProof) -> None:
    """Print the verdict, the rewrites on which the proof rests, and the regions that are not proved."""
    for note in proof.notes:
        narrate(note)
    click.echo(verdict_text(proof.verdict, proof.rewrites))
    if proof.regions:
        rows = [
            (
                _labels(region.nodes_a),
                _labels(region.nodes_b),
                "not run" if region.difference is None else f"{region.difference:.3g}",
            )
            for region in proof.regions
        ]
        table(("nodes of the first", "nodes of the second", "largest difference"), rows)


def _labels(labels: list[str]) -> str:
    more = f" and {len(labels) - MAX_LABELS} more" if len(labels) > MAX_LABELS else ""
    return ", ".join(labels[:MAX_LABELS]) + more if labels else "none"


def check_certificate_file(path: str, a: str | Model, b: str | Model) -> None:
    """Check a certificate against two models. Raises FormatError if it was altered or belongs to other models."""
    from dovetail.compare.prove.certificate import check_certificate, read_certificate

    check_certificate(read_certificate(path), a, b)
    click.echo("the certificate holds: the equality follows again, with the rewrites that it lists")
