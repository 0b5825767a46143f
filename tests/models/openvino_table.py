"""Writes docs/openvino_operators.md, what came of the rows of ``cases_openvino``:
``python tests/models/openvino_table.py [--show] [families ...]``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases_openvino import Row, all_rows
from openvino_runner import STEPS, WITHOUT_ROWS, known, outcome

TARGET = Path(__file__).parents[2] / "docs" / "openvino_operators.md"
HEAD = """# OpenVINO's operators

Written by `python tests/models/openvino_table.py` from one-operator models, built with openvino {version} and saved as IR;
`tests/cases_openvino` holds them, and `tests/models/test_openvino_nodes.py` compares every one with this table.

**rows**: models, with other types, shapes and attributes. **values**: read by dovetail, and run in the interpreter and natively,
they give OpenVINO's shapes, types and values (or, in the rows listed below, those of its specification). **IR**: the IR that
dovetail writes of them loads in OpenVINO and gives the same. **ONNX**: the ONNX that dovetail writes of them gives the same in
onnxruntime, or in onnx.reference where onnxruntime has no kernel. A cell with one number is all rows; `-` is an operator that is
not built; what is missing is refused by name, and listed below.

"""


def counted() -> dict[str, int]:
    """Count the rows of each operator."""
    return dict(Counter(row.operator for _, row in all_rows()))


def results(families: list[str]) -> dict[tuple[str, str], list[tuple[Row, str, str]]]:
    """By operator and step: each row, how it ended, and its message."""
    found: dict[tuple[str, str], list[tuple[Row, str, str]]] = defaultdict(list)
    built = known()
    for family, row in all_rows():
        if families and family not in families:
            continue
        for step in STEPS:
            is_here = row.refused or (row.kind, row.version) in built
            how, what = outcome(row, step) if is_here else ("not built", "")
            found[row.operator, step].append((row, how, what))
    return found


def cell(ended: list[tuple[Row, str, str]]) -> str:
    good = sum(1 for _, how, _ in ended if how == "agrees")
    if all(how == "not built" for _, how, _ in ended):
        return "-"
    return str(good) if good == len(ended) else f"{good} of {len(ended)}"


def order(operator: str) -> tuple[str, int]:
    kind, _, version = operator.rpartition("-")
    return kind.lower(), int(version)


def text(found: dict[tuple[str, str], list[tuple[Row, str, str]]]) -> str:
    import openvino

    operators = sorted({operator for operator, _ in found}, key=order)
    lines = [
        HEAD.format(version=openvino.__version__.partition("-")[0]) + "| operator | rows | values | IR | ONNX |",
        "| --- | --- | --- | --- | --- |",
    ]
    for operator in operators:
        cells = [cell(found[operator, step]) for step in STEPS]
        lines.append(f"| {operator} | {len(found[operator, STEPS[0]])} | {' | '.join(cells)} |")
    total = {step: sum(how == "agrees" for operator in operators for _, how, _ in found[operator, step]) for step in STEPS}
    count = sum(len(found[operator, STEPS[0]]) for operator in operators)
    lines += [
        "",
        f"{len(operators)} operators and versions, {count} rows: "
        f"values {total['values']}, IR {total['ir']}, ONNX {total['onnx']}.",
    ]
    lines += ["", "## Where OpenVINO is not the measure", ""]
    reasons: dict[str, list[str]] = defaultdict(list)
    for operator in operators:
        for row, _, _ in found[operator, STEPS[0]]:
            if row.why and operator not in reasons[row.why]:
                reasons[row.why].append(operator)
    lines += [f"- {', '.join(names)}: {why}." for why, names in reasons.items()]
    lines += ["", "## Refused", ""]
    refusals: dict[str, list[str]] = defaultdict(list)
    for operator in operators:
        for row, _, _ in found[operator, STEPS[0]]:
            for words, where in ((row.refused, ""), (row.ir, " as IR"), (row.onnx, " as ONNX")):
                if words and f"{operator}{where}" not in refusals[words]:
                    refusals[words].append(f"{operator}{where}")
    lines += [
        f"- {', '.join(names)}: `{words.partition(': ')[0]}`, {words.partition(': ')[2]}." for words, names in refusals.items()
    ]
    lines += ["", "## Without a row", ""]
    lines += [f"- {operator}: {why}." for operator, why in WITHOUT_ROWS.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    found = results(options.families)
    made = text(found)
    if options.show or options.families:
        print(made)
    else:
        TARGET.write_text(made)
    wrong = [
        (str(row), step, how, what)
        for (_, step), ended in found.items()
        for row, how, what in ended
        if how in ("differs", "failed")
    ]
    for row_text, step, how, what in wrong:
        print(row_text, step, how, what[:400], file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
