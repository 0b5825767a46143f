"""Control flow as torch writes it for scripted modules: loops, choices by data, lists that grow."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dovetail
from assertions import assert_close
from oracles import run_onnxruntime

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow


def scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        # torch deprecates what many models were exported with.
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


@scripted
def while_counting(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    i = 0
    while i < int(n):
        x = x * 0.5 + 1
        i += 1
    return x


@scripted
def while_large(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    while bool(x.abs().max() > 1.0):
        x = x * 0.5
    return x + n


@scripted
def choice_by_data(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        return x.relu() + n
    else:
        return x.neg().cumsum(0)


@scripted
def stacked_list(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    state = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        state = torch.tanh(state + x[i] + n)
        found.append(state)
    return torch.stack(found)


@scripted
def joined_list(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    for i in range(x.size(0)):
        part = x[i] * i
        found.append(part)
    return torch.cat(found, 0) + n


@scripted
def early_end(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for _ in range(int(n)):
        x = x + x
        if bool(x.max() > 10):
            break
    return x


@scripted
def choice_in_loop(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for i in range(int(n)):
        if i % 2 == 0:
            x = x + 1
        else:
            x = x * 2
    return x


@scripted
def choice_in_loop_in_choice(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if int(n) > 2:
        for i in range(x.size(0)):
            if bool(x[i].sum() > 0):
                x = torch.cat([x, x[i : i + 1]], 0)
    else:
        x = x[:1]
    return x


@scripted
def growing(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(0, x.size(1))
    i = 0
    while i < x.size(0) and bool(x[i, 0] < 2):
        found = torch.cat([found, x[i : i + 1] * n], 0)
        i += 1
    return found


@scripted
def squeezed(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if x.size(1) == 1:
        x = x.squeeze(1)
    if x.dim() == 1:
        x = x.unsqueeze(1)
    return x.sum(1)


@scripted
def split_parts(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(x.size(1))
    for part in torch.split(x, 2, 0):
        found = torch.tanh(found + part.sum(0) + n)
    return found


SCRIPTS = [while_counting, while_large, choice_by_data, stacked_list, joined_list, early_end]
SCRIPTS += [choice_in_loop, choice_in_loop_in_choice, growing, squeezed, split_parts]


class _Module(torch.nn.Module):
    """A script as a module, with the plain inputs that an exporter wants."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.script = script

    def forward(self, x: Any, n: Any) -> Any:
        return self.script(x, n)


def exported(script: Any, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, given = _Module(script).eval(), (torch.randn(4, 3), torch.tensor(3))
        axes = {"x": {0: "a", 1: "b"}}
        options = {"input_names": ["x", "n"], "output_names": ["y"], "dynamic_axes": axes, "opset_version": 17}
        torch.onnx.export(module, given, str(path), dynamo=False, **options)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_scripted_module_runs_in_every_engine_and_format(script: Any, tmp_path: Path) -> None:
    exported(script, tmp_path / "a.onnx")
    original = (tmp_path / "a.onnx").read_bytes()
    model = dovetail.load(tmp_path / "a.onnx")
    assert not any(item.severity == "error" for item in model.warnings)
    dovetail.save(model, tmp_path / "b.onnx")
    programs: list[Any] = [dovetail.compile(model, "native"), dovetail.compile(model, "interpreter")]
    files = [tmp_path / "b.onnx"]
    if script is split_parts:
        # How many parts there are is known only at run time, and IR has no lists.
        with pytest.raises(dovetail.UnsupportedError):
            dovetail.save(model, tmp_path / "a.xml")
    else:
        openvino = pytest.importorskip("openvino")
        dovetail.save(model, tmp_path / "a.xml")
        back = dovetail.load(tmp_path / "a.xml")
        dovetail.save(back, tmp_path / "c.onnx")
        programs += [dovetail.compile(back), openvino.Core().compile_model(str(tmp_path / "a.xml"), "CPU", EXACT)]
        files.append(tmp_path / "c.onnx")
    for seed in range(5):
        rng = np.random.default_rng(seed)
        shape = (int(rng.integers(1, 6)), int(rng.integers(1, 4)))
        given = {"x": (rng.standard_normal(shape) * 3).astype(np.float32), "n": np.array(rng.integers(0, 5))}
        named = {each: given[each] for each in given if any(value.name == each for value in model.inputs)}
        (expected,) = run_onnxruntime(original, named)
        found = [np.array(y) for program in programs for y in program(named).values()]
        found += [y for file in files for y in run_onnxruntime(file.read_bytes(), named)]
        assert len(found) == len(programs) + len(files)
        for y in found:
            assert y.shape == expected.shape
            assert_close(y, expected, 1e-5)


EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
