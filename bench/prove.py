"""Prove conversions of every model of a folder equal for all inputs: round trips, neighbouring opsets, and simplify.

    python bench/prove.py FOLDER [--models TEXT[,TEXT...]] [--sample N] [--kinds KIND[,KIND...]] [--check] [--json]

FOLDER has .onnx files and .xml files with their .bin, such as the development corpus. Each ONNX file is converted to IR and back
(roundtrip), saved with the next lower and the next higher opset (older, newer), simplified (simplify), and converted to IR
(convert); each IR file is converted to ONNX and back, simplified, and converted to ONNX. The result is a file that is loaded
again, and proved equal to its original.
Prints the share of proved pairs (bits, real), the share of nodes in the remaining regions, the median of the time of a proof over
the time of loading both files three times, and the operators at the first unequal values. --sample takes every N-th file.
With --check the package dovetail_check checks the certificate of each proof: accepted, refused, or without steps; its time is
given over that of loading both files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dovetail
import dovetail_check
from dovetail.errors import DovetailError

KINDS = ("roundtrip", "older", "newer", "simplify", "convert")
TEXT_WIDTH = 110
SIDES = (attrgetter("nodes_a"), attrgetter("nodes_b"))
"""The nodes of a region in either model."""


def variants(source: Path, kinds: set[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the variants of a model, and yield the kind and the file of each; a model that cannot be written is left out."""
    suffix = source.suffix
    model = dovetail.load(source)
    for kind in KINDS:
        if kind not in kinds:
            continue
        target = folder / f"{kind}{suffix}"
        try:
            if kind == "roundtrip":
                middle = folder / ("middle.xml" if suffix == ".onnx" else "middle.onnx")
                dovetail.save(model, middle)
                dovetail.save(dovetail.load(middle), target)
            elif kind == "convert":
                target = folder / ("convert.xml" if suffix == ".onnx" else "convert.onnx")
                dovetail.save(model, target)
            elif kind == "simplify":
                simplified = dovetail.simplify(model)
                dovetail.save(simplified, target)
            elif suffix == ".onnx":
                opset = model.versions.get("", 0) + (1 if kind == "newer" else -1)
                dovetail.save(model, target, opset=opset)
            else:
                continue
        except DovetailError as error:
            print(f"  {source.name} {kind}: not written: [{error.code}]", file=sys.stderr)
            continue
        yield kind, target


def check_pair(models: tuple[dovetail.Model, dovetail.Model], proof: dovetail.EqualityProof, folder: Path) -> dict[str, Any]:
    """Check the certificate of a proof by dovetail_check, and return the result with the operator of a refused step."""
    certificate = proof.certificate()
    paths = [folder / name for name in ("first.dt", "second.dt")]
    for model, path in zip(models, paths, strict=True):
        dovetail.save(model, path)
    start = perf_counter()
    if certificate["derivation"] is None:
        return {"check": "without steps"}
    try:
        verdict = dovetail_check.check(paths[0], paths[1], certificate)
    except dovetail_check.Refused as error:
        return {"check": "refused", "check_seconds": perf_counter() - start, "refusal": str(error)}
    return {"check": "accepted", "check_seconds": perf_counter() - start, "types": dict(verdict.types)}


def prove_pair(source: Path, target: Path, is_checked: bool) -> dict[str, Any]:
    """Prove one pair, and return its row."""
    start = perf_counter()
    first, second = dovetail.load(source), dovetail.load(target)
    loading = perf_counter() - start
    start = perf_counter()
    proof = dovetail.prove(first, second, real=True)
    seconds = perf_counter() - start
    checked: dict[str, Any] = {}
    if is_checked and proof.is_proved:
        checked = check_pair((first, second), proof, target.parent)
        checked["check_ratio"] = checked.get("check_seconds", 0.0) / loading
    nodes = len(first.graph.nodes) + len(second.graph.nodes)
    remaining = sum(len({name for region in proof.regions for name in side(region)}) for side in SIDES)
    return {
        "verdict": proof.verdict,
        **checked,
        "rewrites": proof.rewrites,
        "ratio": seconds / (3 * loading),
        "seconds": seconds,
        "remaining": remaining / nodes if nodes else 0.0,
        "nodes": nodes,
        "blockers": [f"{op_a} / {op_b}" for op_a, op_b in proof.frontier] if proof.verdict in ("open", "different") else [],
        "notes": proof.notes,
        "worst": max((region.difference or 0.0 for region in proof.regions), default=0.0),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    texts = [text for text in arguments.models.split(",") if text]
    files = sorted([*arguments.folder.glob("*.onnx"), *arguments.folder.glob("*.xml")])
    files = [file for file in files if not texts or any(text in file.name for text in texts)][:: arguments.sample]
    rows: list[dict[str, Any]] = []
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for kind, target in variants(file, set(arguments.kinds.split(",")), Path(folder)):
                    rows.append({"model": file.name, "kind": kind, **prove_pair(file, target, arguments.check)})
                    print_row(rows[-1])
            except DovetailError as error:
                print(f"  {file.name}: [{error.code}] {error.message}"[:TEXT_WIDTH], file=sys.stderr)
    if arguments.json:
        print(json.dumps(rows))
    print_summary(rows)
    return 0


def print_row(row: dict[str, Any]) -> None:
    blockers = (
        f" {row['remaining']:.0%} {'; '.join(row['blockers'][:3])} {' '.join(row['notes'])}"
        if row["blockers"] or row["notes"]
        else ""
    )
    print(
        f"{row['model']:44} {row['kind']:9} {row['verdict']:9} {row['ratio']:5.2f}x {row['seconds']:6.2f}s"
        f" {row.get('check', ''):9} {row.get('refusal', '')[:80]}{blockers}"[:230],
        flush=True,
    )


def print_summary(rows: list[dict[str, Any]]) -> None:
    for kind in (*KINDS, "all"):
        chosen = [row for row in rows if kind in (row["kind"], "all")]
        if not chosen:
            continue
        verdicts = Counter(row["verdict"] for row in chosen)
        unproved = [row for row in chosen if row["verdict"] not in ("bits", "real")]
        nodes = sum(row["nodes"] for row in unproved)
        remaining = sum(row["remaining"] * row["nodes"] for row in unproved) / nodes if nodes else 0.0
        proved = len(chosen) - len(unproved)
        share = proved / len(chosen)
        print(
            f"{kind:9}: {proved}/{len(chosen)} = {share:.1%} proved ({dict(verdicts)}), "
            f"{remaining:.1%} of the nodes of "
            f"the others remain, median time {median(row['ratio'] for row in chosen):.2f} of three loads"
        )
    models = {row["model"] for row in rows}
    whole = [model for model in models if all(row["verdict"] in ("bits", "real") for row in rows if row["model"] == model)]
    if models:
        print(f"files   : {len(whole)}/{len(models)} = {len(whole) / len(models):.1%} with every variant proved")
    print_checks([row for row in rows if "check" in row])
    blockers = Counter(blocker for row in rows for blocker in set(row["blockers"]))
    for blocker, count in blockers.most_common(25):
        print(f"  {count:4} {blocker}")


def print_checks(rows: list[dict[str, Any]]) -> None:
    for kind in KINDS:
        chosen = [row for row in rows if row["kind"] == kind]
        if chosen:
            counts = Counter(row["check"] for row in chosen)
            ratio = median(row["check_ratio"] for row in chosen)
            print(f"{kind:9}: certificates {dict(counts)}, median time {ratio:.2f} of loading both files")
    refusals = Counter(row["refusal"].partition(": ")[2][:60] for row in rows if "refusal" in row)
    for refusal, count in refusals.most_common(25):
        print(f"  {count:4} refused: {refusal}")


if __name__ == "__main__":
    sys.exit(main())
