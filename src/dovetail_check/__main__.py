"""The command dovetail-check. Exit codes: 0 accepted, 1 refused, 2 usage, 3 files that cannot be read."""

from __future__ import annotations

import argparse
import os
import sys

from dovetail_check import Refused, Verdict, check


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="dovetail-check", description="Check a certificate that two models in dovetail's text form are equal."
    )
    parser.add_argument("first", help="a model in text form: dovetail convert model.onnx model.dt")
    parser.add_argument("second", help="the other model in text form")
    parser.add_argument("certificate", help="dovetail diff a.onnx b.xml --prove --real --certificate proof.json")
    options = parser.parse_args()
    try:
        verdict = check(options.first, options.second, options.certificate)
    except Refused as error:
        return _say(f"refused: {error}", 1)
    except (OSError, ValueError) as error:
        print(f"dovetail-check: {error}", file=sys.stderr)
        return 3
    meaning = "the same bits for all inputs" if verdict.kind == "bits" else "equal over the real numbers for all inputs"
    lines = [f"accepted: {meaning}{_conditions(verdict)}, in {verdict.steps} steps"]
    if verdict.largest:
        lines.append(
            f"constants that are equal but for their rounding differ by at most {verdict.largest:.1e} "
            "of their value, added up over the steps"
        )
    if verdict.computed:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(verdict.computed.items()))
        lines.append(f"constants have the bits that numpy computes on this machine, of: {listed}")
    if verdict.narrow:
        lines.append(f"products of sizes in {verdict.narrow} constants of i32 are taken to be in the range of i32")
    if verdict.types:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(verdict.types.items()))
        lines.append(f"types taken from the certificate, of outputs of: {listed}")
    return _say("\n".join(lines), 0)


def _conditions(verdict: Verdict) -> str:
    """Return the conditions under which the models are equal, as the end of a sentence."""
    text, conditions = "", verdict.conditions
    for index, model in enumerate(("first", "second")):
        if sizes := conditions.sizes[index]:
            text += f", at {', '.join(f'{name}={number}' for name, number in sizes.items())} of the {model} model"
        if states := conditions.states[index]:
            listed = "; ".join(f"{name} is {past}, then {present}" for name, (past, present) in states.items())
            text += f", in each step, where states of the {model} model are inputs and outputs of the other ({listed})"
            text += " and begin empty or with zeros"
    if conditions.rounded:
        listed = ", ".join(f"{name} by {bound:.3g}" for name, bound in conditions.rounded.items())
        text += f", where constants of the first model are rounded, each element by at most a bound ({listed})"
    return text


def _say(text: str, code: int) -> int:
    """Print a text, and return the exit code: 3 where it cannot be printed, but for a reader that wants no more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"dovetail-check: {error}", file=sys.stderr)
        return 3
    return code


if __name__ == "__main__":
    sys.exit(main())
