"""Law: every verb holds ``--limit memory=`` and ``seconds=`` for models that are small files and large runs.

Each verb runs in a forked child, whose peak memory and processor time the parent reads.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import save_file

from dovetail.cli import COMMANDS
from hostile_models import FLOAT, INT64, declared, integers, model_of, node

LIMIT = 64 << 20
"""Bytes of a run."""
SLACK = 3 * LIMIT + (96 << 20)
"""Bytes that a verb may take: the run, its inputs, a copy of its outputs, and modules imported late."""
SECONDS = 12
"""Processor time of a verb, with the search for sizes and late imports."""


def concat_doubling() -> onnx.ModelProto:
    nodes = [node("Concat", [f"m{index}", f"m{index}"], [f"m{index + 1}"], axis=0) for index in range(60)]
    return model_of(nodes, [declared("m0", ["n"])], [declared("m60", ["k"])])


def einsum_product() -> onnx.ModelProto:
    nodes = [node("Expand", ["x", "size"], ["v"]), node("Einsum", ["v", "v", "v"], ["e"], equation="i,j,k->ijk")]
    nodes.append(node("ReduceSum", ["e"], ["y"], keepdims=0))
    return model_of(nodes, [declared("x", [1])], [declared("y", [])], [integers("size", 1000)])


def mel_matrix() -> onnx.ModelProto:
    constants = [integers(name, value) for name, value in (("bins", 8), ("length", 1 << 29), ("rate", 16000))]
    constants = [numpy_helper.from_array(numpy_helper.to_array(item).reshape(()), item.name) for item in constants]
    edges = [numpy_helper.from_array(np.float32(value), name) for name, value in (("low", 0.0), ("high", 8000.0))]
    nodes = [node("MelWeightMatrix", ["bins", "length", "rate", "low", "high"], ["w"]), node("Add", ["w", "x"], ["y"])]
    return model_of(nodes, [declared("x", [1])], [declared("y", None)], [*constants, *edges])


def unequal_branch() -> onnx.ModelProto:
    """Return a model in which the size of a fill is an input's element, so that no inference knows it."""
    nodes = [node("Mul", ["s", "large"], ["size"]), node("ConstantOfShape", ["size"], ["f"]), node("ReduceSum", ["f"], ["y"])]
    return model_of(nodes, [declared("s", [1], INT64)], [declared("y", [1])], [integers("large", 1 << 33)])


def doubling_products() -> onnx.ModelProto:
    """Return an outer product of an open length, whose square a search would choose large."""
    nodes = [node("Reshape", ["x", "r"], ["m"]), node("Unsqueeze", ["x", "one"], ["c"]), node("Unsqueeze", ["x", "zero"], ["d"])]
    nodes += [node("MatMul", ["c", "d"], ["p"]), node("Reshape", ["m", "flat"], ["q"]), node("ReduceSum", ["p"], ["s"])]
    nodes += [node("Add", ["q", "s2"], ["y"]), node("Squeeze", ["s"], ["s2"])]
    nodes = [*nodes[:6], nodes[7], nodes[6]]
    constants = [integers("r", -1, 16411), integers("one", 1), integers("zero", 0), integers("flat", -1)]
    return model_of(nodes, [declared("x", ["n"], FLOAT)], [declared("y", ["n"])], constants)


BOMBS: dict[str, Any] = {
    "concat": concat_doubling,
    "einsum": einsum_product,
    "mel": mel_matrix,
    "fill": unequal_branch,
    "outer": doubling_products,
}

VERBS = {
    "bench": ["bench m.onnx"],
    "check": ["check m.onnx"],
    "compare": ["compare m.onnx", "compare m.onnx --with copy.onnx"],
    "convert": [
        "convert m.onnx new.xml",
        "convert m.onnx new.xml --verify",
        "convert m.onnx new2.onnx --opset 13 --verify",
        "convert m.onnx new4.onnx --encoding qdq",
        "convert m.onnx new3.xml --stateful --state {x}={y}",
    ],
    "cost": ["cost m.onnx", "cost m.onnx --fits 1MB"],
    "diff": ["diff m.onnx copy.onnx", "diff m.onnx copy.onnx --prove"],
    "draw": ["draw m.onnx -o new.svg", "draw m.onnx -o new.html --color time"],
    "edit": ["edit m.onnx --rename {x}=z -o new.onnx", "edit m.onnx --rename {x}=z -o new.onnx --verify"],
    "extract": ["extract m.onnx --to {y} -o new.onnx", "extract m.onnx --to {y} -o new.onnx --verify"],
    "grad": ["grad m.onnx new.onnx"],
    "infer": ["infer m.onnx", "infer m.onnx --verify"],
    "info": ["info m.onnx", "info m.onnx --json"],
    "inspect": ["inspect m.onnx", "inspect m.onnx -o new.html"],
    "map": ["map m.onnx rows.npy -o parts --engine local --workers 1"],
    "merge": ["merge m.onnx copy.onnx -o new.onnx", "merge m.onnx copy.onnx -o new.onnx --verify"],
    "ops": ["ops"],
    "plan": ["plan m.onnx"],
    "profile": ["profile m.onnx"],
    "quantize": ["quantize m.onnx -o new.onnx", "quantize m.onnx -o new.onnx --to int4 --budget 1%"],
    "rebatch": ["rebatch m.onnx --dim 0=2 -o new.onnx"],
    "reduce": ["reduce m.onnx --check 'false {{}}' -o new.onnx"],
    "report": ["report m.onnx -o new.html"],
    "reshard": ["reshard m.onnx weights.safetensors -o moved"],
    "run": ["run m.onnx", "run m.onnx --engine interpreter"],
    "shard": ["shard m.onnx --mesh a=1"],
    "show": ["show m.onnx"],
    "simplify": ["simplify m.onnx -o new.onnx", "simplify m.onnx -o new.onnx --prove"],
}
"""Command lines of each verb; ``{x}`` and ``{y}`` are the first input and output."""

CHILD = """
import json, os, sys, resource
import dovetail, dovetail.cli as cli
import dovetail.runtime.random_inputs, dovetail.compare.verification.rewrites, dovetail.compare.diff, dovetail.compare.prove
import dovetail.runtime.compilation
import onnx, onnxruntime, openvino
for name in cli.COMMANDS:
    cli.dovetail.get_command(None, name)
from dovetail.engine.machine_limits import LimitMeter
from dovetail.ir.host.threads import thread_count
LimitMeter(thread_count(None)).measure()  # The bytes of this measurement do not depend on the model.
peaks = {}
for command in [["--help"], *json.loads(sys.argv[1])]:
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2]) + 1))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            cli.main(command)
        except SystemExit as end:
            os._exit(end.code or 0)
        os._exit(99)
    _, status, usage = os.wait4(pid, 0)
    peaks[" ".join(command)] = [status, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime]
print(json.dumps(peaks))
"""


def test_every_verb_is_listed() -> None:
    assert set(VERBS) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a child in the units of Linux")
@pytest.mark.parametrize("name", BOMBS)
def test_a_command_obeys_the_limits_of_memory_and_time(tmp_path: Path, name: str) -> None:
    model = BOMBS[name]()
    for file in ("m.onnx", "copy.onnx"):
        (tmp_path / file).write_bytes(model.SerializeToString())
    np.save(tmp_path / "rows.npy", np.ones((5, 4), np.float32))
    inputs = {value.name: np.ones(1, np.float32) for value in model.graph.input}
    save_file(inputs, tmp_path / "weights.safetensors")
    names = {"{x}": model.graph.input[0].name, "{y}": model.graph.output[0].name}
    commands = []
    for verb, lines in VERBS.items():
        for line in lines:
            words = [word.replace("{x}", names["{x}"]).replace("{y}", names["{y}"]) for word in shlex.split(line)]
            commands.append(words if verb == "ops" else [*words, "--limit", f"memory={LIMIT}", "--limit", "seconds=2"])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    # The plan verifier, which only tests switch on, takes memory for each byte of the copy that measures the bandwidth.
    environment["DOVETAIL_VERIFY"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(commands), str(SECONDS)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = json.loads(done.stdout)
    base = peaks.pop("--help")[1]
    wrong = {
        command: f"status {status}, {(peak - base) >> 20} MiB, {seconds:.1f} s"
        for command, (status, peak, seconds) in peaks.items()
        if os.waitstatus_to_exitcode(status) not in (0, 1, 3, 4, 5, 6) or peak - base > SLACK
    }
    assert not wrong, "\n".join(f"{command}: {wrong[command]}" for command in wrong)
