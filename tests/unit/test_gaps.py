"""The list of gaps is strict both ways."""

from __future__ import annotations

import pytest

from gaps import Gap, Gaps, read

pytest_plugins = ("pytester",)

TESTS = """
import pytest

@pytest.mark.parametrize("name", ["works", "fails [1]", "fails [2]"])
def test_each(name):
    assert name == "works"

def test_skipped():
    pytest.skip("outside")
"""


def run(pytester: pytest.Pytester, *gaps: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=TESTS)
    return pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:zarr", plugins=[Gaps([Gap(f"test_it.py::{test}", "because") for test in gaps])]
    )


def test_a_listed_failure_is_expected(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_each[fails [1]]", "test_each[*[2]]")
    result.assert_outcomes(passed=1, xfailed=2, skipped=1)
    assert result.ret == 0


def test_a_failure_that_is_not_listed_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_each[fails [1]]")
    result.assert_outcomes(passed=1, xfailed=1, failed=1, skipped=1)


def test_a_mended_gap_fails_until_it_is_struck_out(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_each*")
    result.assert_outcomes(xfailed=2, failed=1, skipped=1)


def test_a_gap_that_fits_no_test_fails_the_run(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_each[fails*", "test_gone")
    result.assert_outcomes(passed=1, xfailed=2, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*no test fits 'test_it.py::test_gone' (because): strike it out"])


def test_a_gap_whose_test_is_skipped_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_each[fails*", "test_skipped")
    result.assert_outcomes(passed=1, xfailed=2, failed=1)


@pytest.mark.parametrize(
    "text", ["[[gap]]\ntest = 'x'", "[[gap]]\ntest = 'x'\nreason = ' '", "[gaps]", "[[gap]]\ntest='x'\nreason='y'\nmore=1"]
)
def test_a_gap_without_a_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"gaps.toml"):
        read(text)
