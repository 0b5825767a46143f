"""Report the installed oracles, configure hypothesis, and add the options that choose among tests."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

import case_laws
from dovetail.ir.host import native_core
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


def _presence(oracle: str) -> str:
    return f"{oracle} {metadata.version(oracle)}" if find_spec(oracle) else f"no {oracle}"


def pytest_sessionfinish() -> None:
    """End the process that asks OpenVINO: it outlives a parent that ends without the handlers of ``atexit``."""
    if "oracles" in sys.modules:
        sys.modules["oracles"].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the collected items out of every garbage collection: there are tens of thousands."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    # pytest's own header is not shown under -q, and this is to be seen in every log.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"dovetail: {native_core.build()}; oracles: {', '.join(map(_presence, ORACLES))}")
    missing = [name for name in sorted({*ORACLES, *OPTIONAL_PACKAGES}) if not find_spec(name)]
    if missing and os.environ.get("DOVETAIL_REQUIRE_ORACLES", "0") not in ("", "0"):
        pytest.exit(f"DOVETAIL_REQUIRE_ORACLES is set and these are missing: {', '.join(missing)}", returncode=1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", default="1/1", metavar="K/N", help="run the Kth of every N tests of each function (K from 1)")
    parser.addoption("--law", default="", metavar="WORD", help="run only laws over cases whose name contains WORD")
    parser.addoption("--quick", action="store_true", help="run each law over one case of each operator, slow laws over none")


def pytest_configure(config: pytest.Config) -> None:
    case_laws.is_quick = config.getoption("--quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first, _, step = config.getoption("--sample").partition("/")
    if step == "1":
        return
    counts: Counter[str] = Counter()
    kept = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        if counts[function] % int(step) == int(first) - 1:
            kept.append(item)
        counts[function] += 1
    items[:] = kept
