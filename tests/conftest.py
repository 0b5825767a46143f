"""Report the installed oracles, configure hypothesis, and add the options that choose among tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

import call_codes
import case_laws
from cases import Case
from dovetail.ir.host import native_core
from dovetail.ir.op import REGISTRY
from dovetail.ir.operator_index import MODULES
from optional_packages import OPTIONAL_PACKAGES

pytest_plugins = ("gaps", "coverage_summary")

# The plan verifier checks every plan that a test makes.
os.environ.setdefault("DOVETAIL_VERIFY", "1")

# The laws compile thousands of small computations with JAX and run each once: compiling is what takes time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1")

ORACLES = ("onnxruntime", "openvino", "torch", "jax", "dask")

# Derandomized, so that a run says something about the change and not about the day; `--hypothesis-profile=thorough` searches.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="module")
def no_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out fsync in laws and models, whose tens of thousands of files are read back at once; tests/unit has it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "unit":
            # A closed descriptor is still an error.
            patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(autouse=True)
def documented_codes() -> Iterator[None]:
    """Fail where a public function raises an error whose code its docstring does not name."""
    call_codes.UNDOCUMENTED.clear()
    yield
    assert not call_codes.UNDOCUMENTED, f"docstrings do not name the codes of {', '.join(set(call_codes.UNDOCUMENTED))}"


@pytest.fixture
def forget_operators() -> Iterator[None]:
    """Remove the operators that a test registers, since other tests iterate over the registry."""
    before = set(dict.keys(REGISTRY))
    yield
    for name in [name for name in dict.keys(REGISTRY) if name not in before and name not in MODULES]:
        del REGISTRY[name]
    REGISTRY.custom_count += 1


def _presence(oracle: str) -> str:
    return f"{oracle} {metadata.version(oracle)}" if find_spec(oracle) else f"no {oracle}"


def pytest_sessionfinish() -> None:
    """End the process that asks OpenVINO: it outlives a parent that ends without the handlers of ``atexit``."""
    if "oracles" in sys.modules:
        sys.modules["oracles"].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the collected items out of every garbage collection: there are tens of thousands."""
    # gc.disable would last: a decorator of dask keeps what gc.isenabled returns when dask is imported.
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    # pytest's own header is not shown under -q, and this is to be seen in every log.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"dovetail: {native_core.build()}; oracles: {', '.join(map(_presence, ORACLES))}")
        if case_laws.seed is not None:
            reporter.write_line(f"dovetail: the short suite with --short --seed {case_laws.seed}")
    missing = [name for name in sorted({*ORACLES, *OPTIONAL_PACKAGES}) if not find_spec(name)]
    if missing and os.environ.get("DOVETAIL_REQUIRE_ORACLES", "0") not in ("", "0"):
        pytest.exit(f"DOVETAIL_REQUIRE_ORACLES is set and these are missing: {', '.join(missing)}", returncode=1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", default="1/1", metavar="K/N", help="run the Kth of N disjoint parts of each function's tests (K from 1)"
    )
    parser.addoption("--law", default="", metavar="WORD", help="run only laws over cases whose name contains WORD")
    parser.addoption(
        "--short", action="store_true", help="run each law over one case of each operator, and a few of the other tests"
    )
    parser.addoption("--seed", type=int, help="choose the tests of --short (default: by the hash of the commit)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--short"):
        # The workers of xdist get the options of this process.
        if config.option.seed is None:
            config.option.seed = _commit_seed()
        case_laws.seed = config.option.seed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if case_laws.seed is not None and {"failed", "error"} & terminalreporter.stats.keys():
        terminalreporter.write_line(f"The same tests again: make test SEED={case_laws.seed}, or --short --seed {case_laws.seed}")


def _commit_seed() -> int:
    """Return the first digits of the commit's hash; 0 outside of a checkout."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout[:7], 16)
    except (OSError, subprocess.CalledProcessError):
        return 0


SHORT_COUNT = 2
"""The most items of a parametrized function in the short suite."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if case_laws.seed is not None:
        items[:] = short_suite(items, case_laws.seed)
    first, _, step = config.getoption("--sample").partition("/")
    if step == "1":
        return
    counts: Counter[str] = Counter()
    kept = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        # Functions of a single test are spread over the parts.
        if (counts[function] + crc32(function.encode())) % int(step) == int(first) - 1:
            kept.append(item)
        counts[function] += 1
    items[:] = kept


def short_suite(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Choose one item of each operator of functions over cases, and ``SHORT_COUNT`` items of each other function."""
    groups: dict[tuple[str, type | None], list[pytest.Item]] = defaultdict(list)
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        case = parameters.get("case")
        operator = type(case.op) if isinstance(case, Case) else None
        groups[item.nodeid if "laws" in parameters else item.nodeid.partition("[")[0], operator].append(item)
    kept: set[pytest.Item] = set()
    for (_, operator), members in groups.items():
        members.sort(key=lambda item: case_laws.rank(seed, item.nodeid))
        kept.update(members[: SHORT_COUNT if operator is None else 1])
    return [item for item in items if item in kept]
