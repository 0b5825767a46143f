"""Every operator has cases, every exclusion of a case has a reason, and the laws cover as many operators as before."""

from __future__ import annotations

import coverage_summary
import law_coverage
from case_runner import CASES, LAWS
from dovetail.ir.op import REGISTRY

WITHOUT_CASES = {
    "Constant": "it is in most other cases",
    "DefaultInput": "it is an input of a file, and has tests in tests/reports/test_optional_inputs.py",
    "Foreign": "it has no rules",
    "If": "it holds graphs, and has tests of its own",
    "Loop": "it holds a graph, and has tests of its own",
    **dict.fromkeys(
        (
            "ConcatFromSequence",
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SplitToSequence",
        ),
        "a list is no tensor: tests/laws/test_sequences.py",
    ),
    **dict.fromkeys(("CastMap", "DictVectorizer", "ZipMap"), "a map is no tensor: tests/unit/test_maps.py"),
    **dict.fromkeys(
        ("Optional", "OptionalGetElement", "OptionalHasElement"), "nothing is no tensor: tests/laws/test_sequences.py"
    ),
}


def test_every_operator_has_cases() -> None:
    assert set(REGISTRY) - {type(case.op).__name__ for _, case in CASES} == set(WITHOUT_CASES)


def test_a_skip_names_a_law_and_has_a_reason() -> None:
    wrong = [
        (str(case), law, reason)
        for _, case in CASES
        for law, reason in case.skip.items()
        if law not in LAWS or not reason.strip()
    ]
    assert wrong == []


def test_the_laws_cover_their_minimum_of_operators() -> None:
    covered = law_coverage.pairs()
    assert sum(map(len, covered.values())) >= coverage_summary.minimum_of_pairs()
    assert set(coverage_summary.minimums()) == set(covered)
