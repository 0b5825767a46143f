"""rebatch of sizes other than the batch: the torch module that a file was exported from at one size judges at others."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, UnsupportedError, rebatch
from dovetail.ir import symbolic
from dovetail.passes.rebatching.sizes import match_factors
from sample_comparison import parsed

RNG = np.random.default_rng(5)


def exported(height: int, width: int) -> tuple[Any, bytes]:
    """Return a module of torch and its file at fixed sizes: attention over positions, a skip connection, a pixel shuffle."""
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(8, 4, 1)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            down = torch.nn.functional.max_pool2d(x, 2)
            n, c, h, w = down.shape
            tokens = down.view(n, c, h * w).transpose(1, 2)
            mixed = torch.softmax(tokens @ tokens.transpose(1, 2) / c, -1) @ tokens
            small = mixed.transpose(1, 2).reshape(n, c, h, w)
            large = torch.nn.functional.interpolate(small, size=x.shape[2:], mode="bilinear", align_corners=False)
            return torch.nn.functional.pixel_shuffle(self.last(torch.cat([large, x * torch.ones_like(x)], 1)), 2)

    torch.manual_seed(0)
    network = Network().eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, torch.zeros(1, 3, height, width), buffer, input_names=["x"], opset_version=17, dynamo=False)
    return network, buffer.getvalue()


@pytest.mark.parametrize("batch", [1, "N"])
def test_a_network_that_was_exported_at_one_size_is_torchs_at_others(batch: int | str) -> None:
    torch = pytest.importorskip("torch")
    runtime = pytest.importorskip("onnxruntime")
    network, data = exported(8, 12)
    original = dovetail.load(data)
    new = rebatch(original, shapes={"x": [batch, 3, "H", "W"]})
    report = new.report
    assert str(new.outputs[0].type) == f"f32[{batch}, 1, 2*H, 2*W]"
    assert all(row.agrees for row in report.comparisons) and "at H=16, W=24 the new model runs" in report.notes
    written = io.BytesIO()
    dovetail.save(new, written)
    session = runtime.InferenceSession(written.getvalue())
    for count, height, width in [(1, 8, 12), (1, 16, 6), (3 if batch == "N" else 1, 4, 10)]:
        x = RNG.normal(size=(count, 3, height, width)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(x)).numpy()
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(dovetail.run(new, {"x": x}).popitem()[1], expected, rtol=1e-3, atol=1e-5)


def test_the_result_at_the_old_sizes_has_the_same_bits() -> None:
    runtime = pytest.importorskip("onnxruntime")
    _, data = exported(8, 12)
    new = rebatch(dovetail.load(data), shapes={"x": [1, 3, "H", "W"]})
    written = io.BytesIO()
    dovetail.save(new, written)
    x = RNG.normal(size=(1, 3, 8, 12)).astype(np.float32)
    results = [runtime.InferenceSession(each).run(None, {"x": x})[0] for each in (data, written.getvalue())]
    assert results[0].tobytes() == results[1].tobytes()


REFUSED = {
    "a table of positions": "{ y = Add(x, positions) }",
    "a layer over all positions": "{ f = Reshape(x, flat) y = MatMul(f, weights) }",
    "windows of 2 or of 4": "{ w = Reshape(x, windows) y = ReduceMax(w, two) }",
    "all old rows": "{ y = Gather<axis = 1>(x, order) }",
}


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_constants_fix_are_refused(name: str) -> None:
    table = ", ".join(str(number) for number in range(16))
    original = parsed(f"""g (float[1, 8, 2] x) => (float[a, b, c] y)
    <float[1, 8, 2] positions = {{{table}}}, int64[2] flat = {{1, 16}}, float[16, 1] weights = {{{table}}},
     int64[4] windows = {{1, 4, 2, 2}}, int64[1] two = {{2}}, int64[8] order = {{1, 0, 3, 2, 5, 4, 7, 6}}> {REFUSED[name]}""")
    with pytest.raises(UnsupportedError) as caught:
        rebatch(original, shapes={"x": [1, "T", 2]})
    assert caught.value.code == "rebatch.sample" and caught.value.node


def test_two_sizes_that_cannot_run_elsewhere_are_refused() -> None:
    """Only the run shows it: the index that the output follows from lies outside at every other size but the old one."""
    with Builder() as b:
        x = b.input("x", "f32", (1, 8))
        size = b.Cast(b.ReduceSum(b.Multiply(x, 0.0), [0, 1]), to="i64")
        count = b.Gather(b.Shape(x, output_type="i64"), [1], axis=0)
        row = b.Add(b.Reshape(size, [1]), b.Where(b.Equal(count, [8]), [0], [9]))
        b.output("y", b.Gather(b.constant(np.arange(3.0, dtype=np.float32)), row, axis=0))
    with pytest.raises(UnsupportedError) as caught:
        rebatch(b.model, shapes={"x": [1, "T"]})
    assert {item.message.split(",")[0] for item in caught.value.diagnostics} == {"run at T=16", "run at T=4"}


@pytest.mark.parametrize(
    ("factors", "target", "expected"),
    [
        ([3, 8, 6], [3, 48], [(3,), (8, 6)]),
        ([3, 48], [3, 8, 6], [(3,), (8,), (6,)]),
        ([12], [1, 3, 4], [(), (3,), (4,)]),
        ([4, 6], [2, 12], [(2,), (2, 6)]),
        ([4], [8], None),
        ([8], [4], None),
    ],
)
def test_factors_are_distributed_in_row_major_order(factors: list[int], target: list[int], expected: Any) -> None:
    assert match_factors(factors, target, int) == expected


def test_a_size_is_never_split() -> None:
    size = symbolic.symbol("H")
    assert match_factors([size, 6], [4, 12], lambda factor: 8 if factor is size else int(str(factor))) is None
    assert match_factors([size, 6], [48], lambda factor: 8 if factor is size else int(str(factor))) == [(size, 6)]
