"""A tour of the public interface: every name of ``dovetail.__all__`` once.

``python examples/tour.py`` builds a small model and converts, checks, runs, plans and differentiates it.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

import dovetail
from dovetail import Diagnostic, Dim, DType, Graph, Limits, Model, Node, Program, Value
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.types import Shape, View

F32Array = npt.NDArray[np.float32]


def build_model() -> Model:
    """Build ``y = reshape(concat(right, 2 * left))`` over the two parts of ``x``."""
    with dovetail.Builder("tour") as b:
        x = b.input("x", "f32", ("batch", 4, 6))
        left, right = b.Split(x, [1, 3], axis=1, outputs=2)
        joined: Value = b.Concat(right, 2 * left, axis=1)
        b.output("y", b.Reshape(joined, [0, -1]))
        b.output("rank", b.Cast(b.Shape(b.Shape(x)), to="i32"))
    return b.model


def describe(model: Model) -> None:
    """Print the nodes of a model, and the shape and element type of its first output."""
    graph: Graph = model.graph
    node: Node
    for node in graph:
        print(type(node.op).__name__, [x.name for x in node.inputs if x is not None], [y.name for y in node.outputs])
    type_of_y = model.values["y"].type
    dtype: DType | None = type_of_y.dtype
    print(dtype, dtype == "f32")
    for size in type_of_y.shape or ():
        print(f"symbolic: {size}" if isinstance(size, Dim) else f"fixed: {size}")


def convert(model: Model, folder: Path) -> Model:
    """Write a model in both formats and read the OpenVINO IR."""
    dovetail.save(model, folder / "tour.onnx", opset=18)
    dovetail.save(model, folder / "tour.xml")
    dovetail.compile(folder / "tour.onnx", cache_dir=folder / "plans")
    diagnostics: list[Diagnostic] = dovetail.check(folder / "tour.xml")
    assert diagnostics == []
    verdict: dovetail.InspectReport = dovetail.inspect(folder / "tour.xml")
    assert verdict.is_sound
    costs: dovetail.CostReport = dovetail.cost(folder / "tour.xml")
    assert costs.memory_bytes > 0
    model = dovetail.infer(dovetail.load(folder / "tour.xml", limits=Limits(nodes=1000)))
    report: dovetail.InferenceReport = dovetail.infer_report(model)
    assert not report.losses
    return report.model


def run_everywhere(model: Model, x: F32Array) -> None:
    """Run a model by the reference interpreter, at once and by a compiled program."""
    expected = dovetail.interpret(model, {"x": x})["y"]
    program: Program = dovetail.compile(model, threads=1)
    out = np.empty_like(expected)
    for outputs in (dovetail.run(model, [x]), program(x), program({"x": x}, out={"y": out})):
        np.testing.assert_array_equal(outputs["y"], expected)
    for results in program.map([x, x], streams=2):
        np.testing.assert_array_equal(results["y"], expected)
    with dovetail.compile(dovetail.extract(model, outputs="y")).batcher(wait_ms=2) as batcher:
        np.testing.assert_array_equal(batcher(x)["y"], expected)
    print(dovetail.plan(model, dovetail.Inputs(sizes={"batch": len(x)})))
    with contextlib.suppress(dovetail.UnsupportedError):
        # [extra.missing] where JAX is not installed.
        print(dovetail.compile(model, "jax", device=dovetail.DeviceOptions(results="device"))(x))
    profile: dovetail.ModelProfile = dovetail.profile(model, {"x": x}, runs=1)
    report: dovetail.ModelReport = dovetail.model_report(model, {"x": x}, runs=1)
    print(profile, report)
    print(len(model.svg(colors={"y": 1.0}, measure="rank")))


def map_rows(model: Model, x: F32Array, folder: Path) -> None:
    """Map rows by column, list the rows that do not fit, and map the rows of a file by another process."""
    mapper = dovetail.Mapper(dovetail.extract(model, outputs="y"), batch=2, columns={"x": "pixels"})
    print(mapper({"pixels": x})["y"].shape, mapper.run_rows({"pixels": [*x, None]}, len(x) + 1).faults)
    dovetail.save(dovetail.extract(model, outputs="y"), folder / "y.onnx")
    np.save(folder / "x.npy", x)
    options = dovetail.MapOptions(part_rows=2)
    files = folder / "y.onnx", folder / "x.npy", folder / "mapped"
    report: dovetail.MapReport = dovetail.map_rows(*files, workers=1, options=options)
    print(report.rows, report.rows_per_second)


def transform(model: Model) -> None:
    """Fix the batch, simplify, cut a part out and put two copies of it side by side."""
    fixed = dovetail.rebatch(model, {"batch": 2})
    simplified = dovetail.simplify(fixed)
    report: dovetail.SimplifyReport = simplified.report
    print(report)
    part = dovetail.extract(simplified, outputs="y")
    print(dovetail.merge(part, part, connect={}, prefix_second="second/"))


def quantize_weights(x: F32Array) -> None:
    """Store the weights of a product in 4 bits, and run it with rows that are rounded to 8 bits."""
    with dovetail.Builder("product") as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)))
    quantized = dovetail.quantize(b.model, "int4", options=dovetail.QuantizeOptions(block_size=16))
    report: dovetail.QuantizeReport = quantized.report
    print(report, dovetail.compile(quantized, precision="int8")(np.resize(x, (2, 64)))["y"].shape)
    print(dovetail.change_encoding(quantized, "qdq"))


def train(x: F32Array) -> None:
    """Take three steps of gradient descent."""
    with dovetail.Builder("regression") as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 4)), b.constant(np.zeros((4, 1), np.float32), name="w")))
    step = dovetail.training_step(b.model, "mse", optimizer="sgd")
    report: dovetail.TrainingReport = step.report
    session = dovetail.compile(step).session(report.states)
    session.states = report.initial
    rows = np.resize(x, (8, 4))
    print([float(session(x=rows, target=rows[:, :1], learning_rate=0.01)["loss"]) for _ in range(3)])
    adapted = dovetail.attach_lora(b.model, rank=1)
    print(adapted.report, dovetail.merge_lora(adapted).values, dovetail.detach_lora(adapted).values)


def keep_state() -> None:
    """Turn a past input and a present output into a state, and back."""
    with dovetail.Builder("sums") as b:
        past, x = b.input("past", "f32", ("batch", "p", 2)), b.input("x", "f32", ("batch", "t", 2))
        b.output("present", b.Concat(past, x, axis=1))
    stateful = dovetail.make_stateful(b.model)
    print(stateful.states, dovetail.make_stateless(stateful).inputs)


def compare_models(folder: Path, x: F32Array) -> None:
    """Compare the two files of ``convert``, prove that they are equal, and find a value and an operator that differ."""
    files = (folder / "tour.onnx", folder / "tour.xml")
    difference: dovetail.ModelDiff = dovetail.diff(*files)
    proof: dovetail.EqualityProof = dovetail.prove(*files)
    dovetail.check_certificate(proof.certificate(), *files)
    print(difference, proof)
    values: dovetail.LayerComparison = dovetail.compare_layers(files[0], engines=["interpreter", "native"], inputs={"x": x})
    wrong: dovetail.BisectResult = dovetail.bisect(files[0], inputs={"x": x})
    print(values, wrong)
    smallest = dovetail.reduce(files[0], lambda path: " = Concat(" in str(dovetail.load(path)))
    report: dovetail.ReduceReport = smallest.report
    print(report)


def reshard_tensors(folder: Path, x: F32Array) -> None:
    """Transpose a tensor in a file without loading it."""
    (folder / "arrays").mkdir()
    np.save(folder / "arrays" / "x.npy", x)
    with dovetail.Builder("transpose") as b:
        b.output("output:x", b.Transpose(b.input("input:x", "f32", x.shape)))
    report: dovetail.ReshardReport = dovetail.reshard(b.model, folder / "arrays", folder / "transposed")
    np.testing.assert_array_equal(np.load(folder / "transposed" / report.files[0]), x.T)
    print(dovetail.reshard_graph({"transpose": {"x": [2, 1, 0]}}, folder / "arrays"))


def differentiate(model: Model, x: F32Array) -> None:
    """Print the gradient of ``y`` with respect to ``x``."""
    slope = dovetail.grad(model, of="y", wrt=["x"])
    outputs = dovetail.run(slope, {"x": x, "grad:y": np.ones((len(x), 24), np.float32)})
    print(outputs["grad:x"].shape)


def define_operator(x: F32Array, folder: Path) -> None:
    """Save a model with an operator of a private domain, and run the file."""

    class TourCube(dovetail.Op, sig="x: F -> y: F", onnx="com.example:TourCube-1(x)"):
        """Compute ``x ** 3`` elementwise."""

        def shape(self, x: View) -> Shape:
            return x.dims

        def evaluate(self, xp: Namespace, x: Array) -> Array:
            return x * x * x

    with dovetail.Builder("cube") as b:
        b.output("y", b.add(TourCube(), b.input("x", "f32", ("batch", 4, 6)))[0])
    dovetail.save(b.model, folder / "cube.onnx")
    (y,) = dovetail.run(folder / "cube.onnx", x)
    assert np.array_equal(y, x**3)


def move_arrays(x: F32Array) -> None:
    """Cut an array apart, copy the parts and join them."""
    first, second = dovetail.split(x, [1, -1], axis=1)
    joined = dovetail.concat([dovetail.copy(first), second], axis=1)
    assert joined.shape == x.shape


def explain_errors(folder: Path) -> None:
    """Raise and catch an error of each class, the base class last."""
    try:
        dovetail.Builder().Concat(axis=0)
    except dovetail.RuleError as error:
        print(error.code, error)
    (folder / "broken.xml").write_text("<net/>")
    try:
        dovetail.load(folder / "broken.xml")
    except dovetail.FormatError as error:
        print(error.code)
    model = build_model()
    for inputs in ({}, {"x": np.zeros(3, np.float32)}):
        try:
            dovetail.run(model, inputs)
        except dovetail.EngineError as error:
            print(error.code)
    try:
        dovetail.Builder().input("x", "f31", ())
    except (dovetail.UnsupportedError, dovetail.DovetailError) as error:
        print(error.code, error.diagnostics)


def main() -> None:
    x = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    with tempfile.TemporaryDirectory() as name:
        model = convert(build_model(), Path(name))
        compare_models(Path(name), x)
        map_rows(model, x, Path(name))
        describe(model)
        transform(build_model())
        quantize_weights(x)
        train(x)
        keep_state()
        run_everywhere(model, x)
        differentiate(model, x)
        define_operator(x, Path(name))
        move_arrays(x)
        reshard_tensors(Path(name), x)
        explain_errors(Path(name))


if __name__ == "__main__":
    main()
