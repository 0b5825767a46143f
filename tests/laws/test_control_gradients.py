"""Gradients through If, Loop and Scan: slopes in random directions, torch's gradients, and the same in every runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail.compare.verification.conversion import compare, runner_for
from dovetail.errors import DovetailError
from dovetail.ops.control_flow.loop import Loop
from dovetail.passes.check import validate

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
TRUE = "go = Constant <value = bool {1}> ()"

CHOICE = """main (bool c, float[3] x, float[3] w) => (float[3] y) {
    y = If (c) <then_branch = t () => (float[3] a) { p = Mul (x, w) a = Sin (p) },
                else_branch = e () => (float[3] d) { d = Mul (x, x) }>
}"""
RECURRENCE = f"""main (int64 trips, float[2] x, float[2, 2] w) => (float[2] y, float[n, 2] ys) {{
    {TRUE}
    y, ys = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t, float[2] e) {{
        f = Cast <to = 1> (i)
        m = MatMul (w, s)
        a = Add (m, f)
        t = Tanh (a)
        e = Mul (t, x)
        c2 = Identity (c)
    }}>
}}"""
UNTIL = """main (int64 trips, bool go, float[2] x, float[2] w) => (float[2] y, float[n, 2] ys) {
    y, ys = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t, float[2] e) {
        t = Mul (s, w)
        e = Mul (t, s)
        total = ReduceSum <keepdims = 0> (t)
        limit = Constant <value = float {4.0}> ()
        c2 = Less (total, limit)
    }>
}"""
TWO_STATES = f"""main (int64 trips, float[2] x, float[2] v) => (float[2] y) {{
    {TRUE}
    zero = Constant <value = int64 {{0}}> ()
    y, u, k = Loop (trips, go, x, v, zero)
        <body: graph = b (int64 i, bool c, float[2] s, float[2] a, int64 n) => (bool c2, float[2] t, float[2] d, int64 m) {{
        one = Constant <value = int64 {{1}}> ()
        m = Add (n, one)
        f = Cast <to = 1> (m)
        t = Mul (s, a)
        g = Sin (s)
        d = Mul (g, f)
        c2 = Identity (c)
    }}>
}}"""
NESTED = f"""main (float[3, 4] x, float[3] z) => (float[3] y) {{
    {TRUE}
    trips = Constant <value = int64 {{3}}> ()
    y = Loop (trips, go, z) <body: graph = b (int64 i, bool c, float[3] s) => (bool c2, float[3] t) {{
        four = Constant <value = int64 {{4}}> ()
        t = Loop (four, c, s) <body: graph = inner (int64 j, bool d, float[3] v) => (bool d2, float[3] w) {{
            d2 = Identity (d)
            column = Gather <axis = 1> (x, j)
            p = Mul (v, column)
            w = Sin (p)
        }}>
        c2 = Identity (c)
    }}>
}}"""
CHOOSES = f"""main (int64 trips, float[2] x, float[2] w) => (float[2] y) {{
    {TRUE}
    y = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t) {{
        two = Constant <value = int64 {{2}}> ()
        early = Less (i, two)
        t = If (early) <then_branch = t () => (float[2] p) {{ p = Mul (s, w) }},
                        else_branch = e () => (float[2] q) {{ q = Sin (s) }}>
        c2 = Identity (c)
    }}>
}}"""


def scan(attributes: str, x: str, e: str) -> str:
    return f"""main (float[3] s, float[{x}] x, float[3] w) => (float[3] y, float[{x}] ys) {{
    y, ys = Scan <num_scan_inputs = 1{attributes}, body = b (float[3] a, float[{e}] p) => (float[3] t, float[{e}] q) {{
        h = Mul (p, w)
        g = Sin (h)
        row = ReduceSum <keepdims = 0> (g, axes)
        m = Mul (a, row)
        t = Sin (m)
        q = Mul (p, t)
        axes = Constant <value = int64[0] {{}}> ()
    }}> (s, x)
}}"""


CHANCE = np.random.default_rng(5)


def some(*shape: int) -> Any:
    return CHANCE.uniform(0.3, 1.2, shape).astype(np.float32)


SCAN = scan("", "4, 3", "3").replace("axes = Constant <value = int64[0] {}> ()\n", "").replace("(g, axes)", "(g)")
BACKWARDS = SCAN.replace("num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1]")
COLUMNS = SCAN.replace("num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1]").replace(
    "4, 3", "3, 4"
)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "one branch": (CHOICE, {"c": True, "x": some(3), "w": some(3)}),
    "the other branch": (CHOICE, {"c": False, "x": some(3), "w": some(3)}),
    "a recurrence": (RECURRENCE, {"trips": 4, "x": some(2), "w": some(2, 2)}),
    "a recurrence of no trips": (RECURRENCE, {"trips": 0, "x": some(2), "w": some(2, 2)}),
    "until a condition": (UNTIL, {"trips": 100, "go": True, "x": some(2), "w": some(2) + 1}),
    "never begun": (UNTIL, {"trips": 100, "go": False, "x": some(2), "w": some(2) + 1}),
    "two states and a count": (TWO_STATES, {"trips": 3, "x": some(2), "v": some(2)}),
    "a loop in a loop": (NESTED, {"x": some(3, 4), "z": some(3)}),
    "a choice in a loop": (CHOOSES, {"trips": 4, "x": some(2), "w": some(2)}),
    "a scan": (SCAN, {"s": some(3), "x": some(4, 3), "w": some(3)}),
    "a scan backwards": (BACKWARDS, {"s": some(3), "x": some(4, 3), "w": some(3)}),
    "a scan of columns": (COLUMNS, {"s": some(3), "x": some(3, 4), "w": some(3)}),
}
RUNS = [pytest.param(text, given, id=name) for name, (text, given) in MODELS.items()]


def loaded(text: str) -> dovetail.Model:
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(onnx.parser.parse_model(f"{HEAD} {text}"), Path(folder) / "loop.onnx")
        return dovetail.load(Path(folder) / "loop.onnx")


def loss(text: str) -> dovetail.Model:
    """Return the model with the sum of all its outputs, each times fixed weights, as its output."""
    model = loaded(text)
    b = dovetail.Builder(graph=model.graph)
    outputs, model.graph.outputs = list(model.graph.outputs), []
    sums = [b.ReduceSum(b.Sin(b.Add(b.Multiply(y, 0.1), 0.5)), list(range(len(y.dims))), keepdims=False) for y in outputs]
    total = sums[0]
    for more in sums[1:]:
        total = b.Add(total, more)
    b.output("loss", total)
    return model


def feeds(model: dovetail.Model, given: dict[str, Any]) -> dict[str, Any]:
    return {value.name: np.asarray(given[value.name], value.dtype.numpy) for value in model.inputs}


@pytest.mark.parametrize("engine", ["interpreter", "auto"])
@pytest.mark.parametrize(("text", "given"), RUNS)
def test_the_gradient_is_the_slope(text: str, given: dict[str, Any], engine: str) -> None:
    model = loss(text)
    gradient = dovetail.grad(model, of="loss")
    assert not validate(gradient.graph)
    found = dovetail.run(gradient, feeds(model, given), engine=engine)
    chance = np.random.default_rng(1)
    smooth = [name for name in found.keys() if name.startswith("grad:")]
    assert smooth
    step = {name.removeprefix("grad:"): chance.standard_normal(found[name].shape).astype(np.float32) for name in smooth}

    def at(distance: float) -> float:
        moved = {name: array + distance * step[name] if name in step else array for name, array in feeds(model, given).items()}
        wide = {name: np.asarray(array, np.asarray(feeds(model, given)[name]).dtype) for name, array in moved.items()}
        return float(dovetail.run(model, wide, engine="interpreter")["loss"])

    slope = (at(2e-3) - at(-2e-3)) / 4e-3
    claimed = sum(float(np.sum(found[f"grad:{name}"].astype(np.float64) * step[name])) for name in step)
    assert claimed == pytest.approx(slope, rel=2e-2, abs=2e-2)


@pytest.mark.parametrize(("file", "runtime"), [("slope.onnx", "onnxruntime"), ("slope.xml", "openvino")])
@pytest.mark.parametrize(("text", "given"), RUNS)
def test_the_saved_gradient_runs_elsewhere(text: str, given: dict[str, Any], file: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    model = loss(text)
    gradient = dovetail.grad(model, of="loss")
    expected = dovetail.run(gradient, feeds(model, given), engine="interpreter")
    dovetail.save(gradient, tmp_path / file)
    again = dovetail.run(tmp_path / file, feeds(model, given))
    found = runner_for(tmp_path / file, runtime).run(feeds(model, given))
    for other in (again, found):
        for row in compare(expected, other):
            assert row.agrees, row


def torch_choice(t: Any, c: Any, x: Any, w: Any) -> list[Any]:
    return [t.sin(x * w) if c else x * x]


def torch_recurrence(t: Any, trips: Any, x: Any, w: Any) -> list[Any]:
    state, parts = x, []
    for trip in range(trips):
        state = t.tanh(w @ state + trip)
        parts.append(state * x)
    return [state, t.stack(parts)]


def torch_until(t: Any, trips: Any, go: Any, x: Any, w: Any) -> list[Any]:
    parts: list[Any] = []
    state = x
    while go and len(parts) < trips:
        before, state = state, state * w
        parts.append(state * before)
        go = bool(state.sum() < 4)
    return [state, t.stack(parts)]


def torch_scan(t: Any, s: Any, x: Any, w: Any) -> list[Any]:
    parts = []
    for part in x:
        s = t.sin(s * t.sin(part * w).sum())
        parts.append(part * s)
    return [s, t.stack(parts)]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("one branch", torch_choice),
        ("the other branch", torch_choice),
        ("a recurrence", torch_recurrence),
        ("until a condition", torch_until),
        ("a scan", torch_scan),
    ],
)
def test_the_gradient_is_torchs(name: str, theirs: Callable[..., list[Any]]) -> None:
    torch = pytest.importorskip("torch")
    text, given = MODELS[name]
    inputs = {
        key: torch.tensor(value, requires_grad=True) if getattr(value, "dtype", None) == np.float32 else value
        for key, value in given.items()
    }

    def theirs_of(x: Any) -> Any:
        return np.zeros(x.shape, np.float32) if x.grad is None else x.grad.numpy()

    total = sum(torch.sin(0.1 * y + 0.5).sum() for y in theirs(torch, **inputs))
    total.backward()
    model = loss(text)
    found = dovetail.run(dovetail.grad(model, of="loss"), feeds(model, given))
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor):
            np.testing.assert_allclose(found[f"grad:{key}"], theirs_of(value), rtol=1e-4, atol=1e-5)


def test_the_second_order_goes_through_a_loop_too() -> None:
    text, given = MODELS["a recurrence"]
    model = loss(text)
    first = dovetail.grad(model, of="loss", wrt=["w"])
    second = dovetail.grad(first, of="grad:w", wrt=["x"])
    direction = np.random.default_rng(2).standard_normal((2, 2)).astype(np.float32)
    found = dovetail.run(second, {**feeds(model, given), "grad:grad:w": direction})["grad:x"]
    step = np.float32(1e-2)
    for place in range(2):
        moved = np.eye(2, dtype=np.float32)[place] * step
        sides = [
            dovetail.run(first, feeds(model, {**given, "x": given["x"] + side * moved}))["grad:w"].astype(np.float64)
            for side in (1, -1)
        ]
        slope = float(np.sum((sides[0] - sides[1]) / (2 * step) * direction))
        assert found[place] == pytest.approx(slope, rel=5e-2, abs=5e-2)


def test_parts_that_no_trip_takes_have_no_slope() -> None:
    """A TensorIterator and a Loop of IR may take fewer parts than there are; from either end."""
    for is_reversed in (False, True):
        with dovetail.Builder() as inner:
            trip, state, part = inner.input("i", "i64", ()), inner.input("s", "f32", (2,)), inner.input("p", "f32", (2, 2))
            going = inner.constant(np.array(True))
            total = inner.ReduceSum(inner.Multiply(part, part), [0], keepdims=False)
            after = inner.Multiply(state, total)
            inner.graph.outputs = [going, after]
        assert trip.name == "i"
        with dovetail.Builder() as b:
            trips, x, s = b.input("trips", "i64", ()), b.input("x", "f32", (10, 2)), b.input("s", "f32", (2,))
            loop = Loop(body=inner.graph, carried=1, scan_inputs=((0, 2, is_reversed),), outputs=1)
            (y,) = b.add(loop, trips, None, s, x)
            b.output("y", b.ReduceSum(y, [0], keepdims=False))
        given = {"trips": np.array(3), "x": some(10, 2), "s": some(2)}
        found = dovetail.run(dovetail.grad(b.model, of="y"), given)["grad:x"]
        taken = found[4:] if is_reversed else found[:6]
        rest = found[:4] if is_reversed else found[6:]
        assert np.all(taken != 0) and not rest.any() and found.shape == (10, 2)


@pytest.mark.parametrize(("file", "runtime"), [("slope.onnx", "onnxruntime"), ("slope.xml", "openvino")])
@pytest.mark.parametrize("trips", [None, 3])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_parts_of_two_rows(is_reversed: bool, trips: int | None, file: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    inner = dovetail.Builder()
    inner.input("i", "i64", ())
    state, part = inner.input("s", "f32", (2,)), inner.input("p", "f32", (2, 2))
    after = inner.Multiply(state, inner.Sin(inner.ReduceSum(inner.Multiply(part, part), [0], keepdims=False)))
    inner.graph.outputs = [inner.constant(np.array(True)), after, inner.Multiply(part, after)]
    with dovetail.Builder() as b:
        count = None if trips is None else b.input("trips", "i64", ())
        x, s = b.input("x", "f32", (10, 2)), b.input("s", "f32", (2,))
        cut, laid = ((0, 2, is_reversed),), ((0, not is_reversed),)
        y, ys = b.add(Loop(body=inner.graph, carried=1, scan_inputs=cut, scan_outputs=laid, outputs=2), count, None, s, x)
        total = b.ReduceSum(b.Sin(ys), [0, 1], keepdims=False)
        b.output("y", b.Add(b.ReduceSum(y, [0], keepdims=False), total))
    given = {"x": some(10, 2), "s": some(2), **({} if trips is None else {"trips": np.array(trips)})}
    gradient = dovetail.grad(b.model, of="y")
    expected = dovetail.run(gradient, given, engine="interpreter")
    step = {name: np.random.default_rng(4).standard_normal(given[name].shape).astype(np.float32) for name in ("x", "s")}
    sides = [
        dovetail.run(b.model, {**given, **{name: given[name] + np.float32(h) * step[name] for name in step}})
        for h in (2e-3, -2e-3)
    ]
    slope = float(sides[0]["y"] - sides[1]["y"]) / 4e-3
    assert sum(float((expected[f"grad:{name}"] * step[name]).sum()) for name in step) == pytest.approx(slope, rel=2e-2, abs=2e-2)
    dovetail.save(gradient, tmp_path / file)
    for row in compare(expected, runner_for(tmp_path / file, runtime).run(given)):
        assert row.agrees, row


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            f"""main (int64 trips, float[1, 3] x) => (float[m, 3] y) {{
    {TRUE}
    y = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[k, 3] s) => (bool c2, float[p, 3] t) {{
        c2 = Identity (c)
        u = Sin (s)
        t = Concat <axis = 0> (u, x)
    }}>
}}""",
            "type.unknown",
        ),
        (
            f"""main (int64 trips, float[3] x) => (float[3] y) {{
    {TRUE}
    y = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[3] s) => (bool c2, float[3] t) {{
        c2 = Identity (c)
        r = RandomUniformLike (s)
        t = Mul (s, r)
    }}>
}}""",
            "grad.op",
        ),
    ],
)
def test_control_flow_without_a_gradient_is_refused_by_name(text: str, code: str) -> None:
    with pytest.raises(DovetailError) as caught:
        dovetail.grad(loss(text), of="loss")
    assert caught.value.code == code and caught.value.node
