"""Random networks over every native kernel: both engines agree, in every instruction set (see ``networks/generator.py``).

``python tests/random_networks.py`` runs more of them, and makes small what fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core
from networks.comparison import compare, disagreement, options_of
from networks.coverage import Coverage
from networks.generator import generate
from networks.network import Network, Step
from networks.reference import Unstable, answers
from networks.shrink import shrink

CLI = Path(__file__).resolve().parents[1] / "random_networks.py"
SEEDS, OTHER_SEEDS, COVERING = 200, 40, 400
"""How many networks run in the instruction set in use, in each other one, and are only planned."""
UNPLANNED = {
    "grid_sample",
    "label_encoder",
    "random_uniform",
    "rms_norm",
    "scatter_update",
    "squared_distances",
    "tree_ensemble",
}
"""Kernels of the core's table that no network has steps of; `tests/cases` has them."""


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_both_engines_agree(first: int) -> None:
    print(f"seeds {first} to {first + 49}")
    failures = {}
    for seed in range(first, first + 50):
        try:
            difference = compare(generate(seed), options_of(seed))
        except Unstable:
            continue
        if difference is not None:
            failures[seed] = str(difference)
    assert failures == {}


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
def test_networks_with_layers_of_few_bits_agree(precision: str) -> None:
    """The interpreter does not round: the tolerance follows from what the engine may round."""
    failures, coverage = {}, Coverage()
    for seed in range(40):
        try:
            difference = compare(generate(seed, precision), options_of(seed, precision), coverage)
        except Unstable:
            continue
        if difference is not None:
            failures[seed] = str(difference)
    assert failures == {}
    assert precision != "bf16" or (coverage.counts["matmul: operands bf16"] and coverage.counts["conv: operands bf16"])
    rows = "int8" if precision == "int8" else "f32"
    assert {f"matmul: weights {kind}, rows {rows}" for kind in ("table4", "i8")} <= coverage.counts.keys()


@pytest.mark.slow
@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
def test_both_engines_agree_in_another_instruction_set(isa: str) -> None:
    if native_core.core().isa() == isa:
        pytest.skip("these are the kernels in use")
    first = {"base": 10_000, "avx2": 11_000, "avx512": 12_000}[isa]
    command = [sys.executable, str(CLI), "--first", str(first), "--count", str(OTHER_SEEDS), "--others", "0", "--isa", isa]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
    assert f"{OTHER_SEEDS} networks" in found.stdout


FUSED = (
    "conv: has_bias", "conv: has_factor", "conv: has_residual", "conv: residual is its input too",
    "conv: residual_after_activation", "conv: prologue", "conv: prologue with relu", "conv: groups", "conv: activation relu",
    "matmul: has_bias", "matmul: has_residual", "matmul: factor", "matmul: activation relu", "quantized_conv: has_residual",
    "elementwise: long", "elementwise: several results", "memory: channels-last copy", "memory: channels-last operand",
    "memory: piece of a buffer", "memory: in place, elementwise", "memory: in place, conv", "memory: in place, matmul",
    "memory: moved nothing", "conv: weights of a run", "conv_transpose: weights of a run", "recurrent: weights of a run",
    "pool: indices",
)  # fmt: skip


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_every_kernel_is_reached() -> None:
    """The first networks have every kernel of the core's table in their plans, and what is joined to them."""
    table = (CLI.parents[1] / "native/kernels/registry.cpp").read_text()
    kernels = set(re.findall(r'\{"(\w+)", make_', table)) - UNPLANNED
    wanted = {f"kernel: {name}" for name in kernels} | set(FUSED)
    assert len(kernels) > 20
    coverage = Coverage()
    for seed in range(COVERING):
        network = generate(seed)
        coverage.note(Engine(network.model(), threads=1).bind(network.shots[0])[0].plan)
        if wanted <= coverage.counts.keys():
            break
    assert wanted - coverage.counts.keys() == set()


def test_a_seed_always_makes_the_same_network() -> None:
    for seed in (0, 1, 2):
        first, second = generate(seed), generate(seed)
        assert first.text() == second.text()
        for one, other in zip(first.shots, second.shots, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in one.keys())


def test_a_failing_network_becomes_small() -> None:
    """As if an engine were wrong wherever a convolution is added to what it reads."""

    def fails(network: Network) -> bool:
        answers(network, network.shots[0])
        made = {name: step for step in network.steps for name in step.writes}
        return any(
            type(step.op).__name__ == "Add" and any(_convolves(made.get(str(x)), y) for x, y in (step.reads, step.reads[::-1]))
            for step in network.steps
        )

    seed = next(seed for seed in range(500) if fails(generate(seed)))
    small = shrink(generate(seed), fails)
    assert [type(step.op).__name__ for step in small.steps] == ["Conv", "Add"]
    assert len(small.inputs) == 1
    assert "Conv(" in small.text()


def _convolves(step: Step | None, x: str | None) -> bool:
    return step is not None and type(step.op).__name__ == "Conv" and step.reads[0] == x


def test_one_wrong_element_is_a_difference() -> None:
    """One element that is wrong by a thousandth of the largest is a difference, and what f32 rounds is none."""
    network = next(found for found in map(generate, range(100)) if _ends_in_floats(found))
    row = [answers(network, network.shots[0])[name] for name in network.outputs]
    honest = [answer.actual for answer in row]
    assert disagreement(honest, row) == ""
    for place, answer in enumerate(row):
        wrong = [array.copy() for array in honest]
        wrong[place].reshape(-1)[-1] += np.asarray(1e-3 * np.abs(answer.truth).max(), answer.actual.dtype)
        assert f"y{place}" in disagreement(wrong, row)


def _ends_in_floats(network: Network) -> bool:
    found = answers(network, network.shots[0])
    return len(network.steps) > 5 and all(found[name].dtype == "f32" and not found[name].is_exact for name in network.outputs)
