"""The report of `dovetail profile`: costs of known operators, sums, the trace, the page, the picture, the command."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder, EngineError, Limits, cli
from dovetail.engine.machine_limits import COPIED_BYTES, SIZE, LimitMeter
from dovetail.engine.step_profile import profile_steps
from dovetail.ir.host import native_core
from dovetail.ir.modules import module_of, module_paths
from dovetail.measure.model_profile import EngineProfile, EngineStep, MachineLoad, ModelProfile
from dovetail.report.profile_text import summary
from perfetto_ui import query_trace, requires_perfetto

F32 = np.float32


def network() -> dovetail.Model:
    """Return a convolution, a pooling, a product and a normalisation, in two modules by their names."""
    rng = np.random.default_rng(0)
    w, m = rng.standard_normal((8, 3, 3, 3)).astype(F32), rng.standard_normal((512, 10)).astype(F32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="/features/0/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="/features/1/Relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="/features/2/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="/Flatten"),
        helper.make_node("MatMul", ["f", "m"], ["y0"], name="/head/MatMul"),
        helper.make_node("Softmax", ["y0"], ["y"], name="/head/Softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(m, "m")],
    )
    return dovetail.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.fixture(scope="module")
def found() -> ModelProfile:
    return dovetail.profile(network(), threads=1, runs=3)


def step_of(model: dovetail.Model, operator: str) -> Any:
    """Return the step of an operator; not the copies that change the layout of its operands."""
    inputs = {value.name: np.ones(value.shape, value.type.dtype.numpy) for value in model.inputs}  # type: ignore[type-var]
    steps = profile_steps(model, inputs, 1, 1).steps
    return max((step for step in steps if step.operator == operator), key=lambda step: step.operations)


# Costs


def test_a_product_reads_both_matrices_and_writes_one() -> None:
    b = Builder()
    b.output("y", b.MatMul(b.input("x", "f32", (5, 7)), np.ones((7, 11), F32)))
    step = step_of(b.model, "MatMul")
    assert (step.read, step.written, step.operations) == (4 * (5 * 7 + 7 * 11), 4 * 5 * 11, 2 * 5 * 7 * 11)


def test_a_grouped_convolution_counts_the_channels_of_a_group() -> None:
    b = Builder()
    b.output("y", b.Conv(b.input("x", "f32", (2, 6, 9, 9)), np.ones((4, 3, 3, 3), F32), group=2))
    step = step_of(b.model, "Conv")
    assert step.operations == 2 * (2 * 4 * 7 * 7) * (3 * 3 * 3)
    assert (step.read, step.written) == (4 * (2 * 6 * 81 + 4 * 27), 4 * 2 * 4 * 49)


@pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")
@pytest.mark.parametrize("has_activation", [False, True])
def test_winograds_algorithm_has_the_operations_of_its_products(has_activation: bool) -> None:
    b = Builder()
    conv = b.Conv(b.input("x", "f32", (2, 32, 41, 30)), np.ones((24, 32, 3, 3), F32), pads=[1, 1, 1, 1])
    b.output("y", b.Relu(conv) if has_activation else conv)
    step = step_of(b.model, "Conv")
    assert "winograd" in step.kernel
    outputs = {36: 4, 16: 2}
    of_activation = 2 * 24 * 41 * 30 * has_activation
    counts = [2 * 2 * -(-41 // n) * -(-30 // n) * points * 32 * 24 + of_activation for points, n in outputs.items()]
    assert step.operations in counts
    assert step.operations < 2 * 2 * 24 * 41 * 30 * 9 * 32


def test_a_broadcast_operand_is_read_once() -> None:
    b = Builder()
    b.output("y", b.Add(b.input("x", "f32", (64, 32)), b.input("z", "f32", (32,))))
    step = step_of(b.model, "Add")
    assert (step.read, step.written, step.operations) == (4 * (64 * 32 + 32), 4 * 64 * 32, 64 * 32)


def test_a_copy_moves_its_bytes_twice_and_computes_nothing() -> None:
    b = Builder()
    b.output("y", b.Identity(b.input("x", "f32", (100,))))
    step = step_of(b.model, "Identity")
    assert (step.read, step.written, step.operations) == (400, 400, 0)


def test_a_gather_counts_only_the_rows_that_it_reads() -> None:
    b = Builder()
    b.output("y", b.Gather(b.constant(np.ones((1000, 8), F32)), b.input("x", "i64", (3,)), axis=0))
    step = step_of(b.model, "Gather")
    assert (step.read, step.written, step.operations) == (3 * 8 * 4 + 3 * 8, 3 * 8 * 4, 0)


def test_operators_of_the_engine_have_the_name_of_the_model() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 8, 6, 6))
    b.output("y", b.GroupNormalization(x, np.ones(8, F32), np.ones(8, F32), num_groups=2))
    steps = profile_steps(b.model, [np.ones((1, 8, 6, 6), F32)], 1, 1).steps
    assert {step.operator for step in steps} == {"GroupNormalization"}


# Sums


def test_the_sums_by_operator_kernel_and_module_are_that_of_the_steps(found: ModelProfile) -> None:
    (engine,) = found.engines
    total = sum(step.seconds for step in engine.steps)
    for groups in (engine.operators(), engine.kernels(), engine.modules(), engine.modules(1)):
        assert sum(group.seconds for group in groups) == pytest.approx(total)
        assert sum(group.count for group in groups) == len(engine.steps)
        assert sum(group.share for group in groups) == pytest.approx(1)
        assert sum(group.nbytes or 0 for group in groups) == sum(step.nbytes or 0 for step in engine.steps)
        assert sum(group.operations or 0 for group in groups) == sum(step.operations or 0 for step in engine.steps)


def test_steps_have_the_operators_and_modules_of_the_model(found: ModelProfile) -> None:
    (engine,) = found.engines
    assert {"Conv", "MaxPool", "MatMul", "Softmax"} <= {step.operator for step in engine.steps}
    assert {group.name for group in engine.modules(1)} <= {"features", "head", "(no module)"}
    conv = max(engine.steps, key=lambda step: step.operations or 0)
    assert conv.operator == "Conv"
    assert conv.module.startswith("features/") and (native_core.core() is None or "Relu" in conv.fused)
    assert conv.operations and conv.operations >= 2 * 2 * 8 * 16 * 16 * 27


def test_limits_are_positive_and_bound_each_step(found: ModelProfile) -> None:
    if native_core.core() is None:
        pytest.skip("needs the native core")
    assert found.limits is not None and all(limit is None or limit > 0 for limit in found.limits)
    for step in found.engines[0].steps:
        assert step.bound in ("memory", "compute") and step.share_of_limit is not None and step.share_of_limit > 0


def test_limits_are_the_best_of_measurements_before_between_and_after_the_runs() -> None:
    """Times of a busy machine do not lower a limit that another moment of the profile reached."""
    b = Builder()
    b.output("y", b.MatMul(b.input("x", "f32", (16, 16)), np.ones((16, 16), F32)))
    copies: list[float] = []
    products: list[float] = []

    def copy() -> float:
        copies.append(0.5 if len(copies) == 4 else 2.0)
        return copies[-1]

    def product() -> float:
        products.append(1.0 + len(products))
        return products[-1]

    found = profile_steps(b.model, [np.ones((16, 16), F32)], 1, 8, LimitMeter(1, [copy, product, lambda: 1.0]))
    assert found.limits is not None and found.runs == 8
    # Two measurements each time: before the runs, three times between them, and after them.
    assert len(copies) == len(products) == 10
    assert found.limits.copy_rate == 2 * COPIED_BYTES / 0.5 and found.limits.f32_rate == 2 * SIZE**3
    for step in found.steps:
        assert step.attainable == found.limits.attainable(step.nbytes, step.operations)[0]


@pytest.mark.skipif(not native_core.has_bf16(), reason="needs AVX512-BF16")
def test_the_limit_of_a_kernel_is_that_of_its_operands() -> None:
    b = Builder()
    x = b.input("x", "f32", (40, 64))
    y = b.MatMul(x, np.ones((64, 48), F32))
    b.output("y", b.Reshape(b.Conv(b.Reshape(y, [1, 40, 48]), np.ones((24, 40, 3), F32)), [24, 46]))
    meter = LimitMeter(1, [lambda: 1e-9, lambda: 8.0, lambda: 4.0, lambda: 2.0])
    for precision, seconds in (("f32", 8.0), ("bf16", 2.0)):
        found = profile_steps(b.model, [np.ones((40, 64), F32)], 1, 1, meter, precision)
        products = [step for step in found.steps if step.operations]
        assert [step.operator for step in products] == ["MatMul", "Conv"]
        for step in products:
            assert step.arithmetic == precision
            assert step.attainable == pytest.approx(step.operations / (2 * SIZE**3 / seconds)) and step.bound == "compute"


@pytest.mark.skipif(not native_core.has_bf16(), reason="needs AVX512-BF16")
def test_a_profile_in_bf16_has_the_limit_of_bf16_in_text_and_chart() -> None:
    b = Builder()
    b.output("y", b.MatMul(b.input("x", "f32", (64, 96)), np.ones((96, 96), F32)))
    rounded, exact = (dovetail.profile(b.model, runs=1, threads=1, precision=each) for each in ("bf16", "f32"))
    assert "bf16 product" in rounded.svg() and "bf16 product" not in exact.svg()
    assert "bf16 product" in dict(summary(rounded))["machine"]
    assert [step["arithmetic"] for step in rounded.as_dict()["engines"][0]["steps"]] == ["bf16"]
    with pytest.raises(EngineError, match="precision must be one of"):
        dovetail.profile(b.model, precision="f8")


def test_meters_of_one_process_share_their_shortest_times() -> None:
    if native_core.core() is None:
        pytest.skip("needs the native core")
    first = LimitMeter(1)
    first.measure()
    before = first.limits
    second = LimitMeter(1)
    assert second.limits == before
    second.measure()
    pairs = [(new, old) for new, old in zip(second.limits, before, strict=True) if old is not None]
    assert all(new >= old for new, old in pairs) and first.limits == second.limits


def profile_of(steps: list[float], run: float, attainable: float | None = None, load: MachineLoad | None = None) -> ModelProfile:
    """Return a profile of steps with these seconds, in a run of ``run`` seconds; each step takes ``attainable`` at the limits."""
    rows = [
        EngineStep(n, f"n{n}", "Relu", "unary", "", s, read=8, written=8, operations=8, attainable=attainable, bound="memory")
        for n, s in enumerate(steps)
    ]
    limits = LimitMeter(1, [lambda: 1.0] * 3)
    limits.measure()
    return ModelProfile("net", {"x": [2]}, 1, limits.limits, [EngineProfile("native", "dovetail", run, 3, rows)], load)


@pytest.mark.parametrize("average", [0.3, 12.6, None])
def test_a_share_above_the_limit_is_explained(average: float | None) -> None:
    load = None if average is None else MachineLoad(average, 2)
    found = profile_of([1e-3, 1e-3], 2e-3, attainable=3.31e-3, load=load)
    for text in (repr(found), found.html(), found.svg()):
        assert "331" not in text and (">100 %" in text or "&gt;100 %" in text)
    for text in (repr(found), found.html()):
        assert "2 steps faster than the measured limit: operands in a cache" in text
        assert ("limits measured on a busy machine" in text) is (average != 0.3)
        assert ("12.6 on 2 processors" in text) is (average == 12.6)
    step = found.as_dict()["engines"][0]["steps"][0]
    assert step["share_of_limit"] == pytest.approx(3.31)
    assert found.as_dict()["load"] == (None if load is None else {"average": average, "processors": 2})


def test_a_share_up_to_the_limit_is_a_number() -> None:
    found = profile_of([1e-3], 1e-3, attainable=1.0004e-3)
    assert "100.0 %" in found.html() and "&gt;100 %" not in found.html() and "faster than" not in repr(found)


@pytest.mark.parametrize(
    ("steps", "run", "expected"),
    [
        ([4e-3, 4e-3], 16e-3, "steps 8 ms of the run's 16 ms: the rest is spent outside of the steps"),
        ([9e-3, 9e-3], 12e-3, "steps 18 ms of the run's 12 ms: the timers or other programs lengthened the steps"),
        ([4e-3, 4e-3], 8.5e-3, None),
    ],
)
def test_steps_that_do_not_add_up_to_the_run_are_reported(steps: list[float], run: float, expected: str | None) -> None:
    found = profile_of(steps, run)
    assert (expected in repr(found)) if expected else ("of the run's" not in repr(found))
    page = "".join(ElementTree.fromstring(found.html().split("\n", 1)[1]).itertext())
    assert (expected in page) if expected else ("of the run's" not in page)


def test_the_load_of_the_machine_is_that_of_the_system(found: ModelProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (7.25, 1.0, 1.0))
    load = dovetail.profile(network(), threads=1, runs=1).load
    assert load is not None and load.average == 7.25 and load.processors >= 1


def test_modules_come_from_metadata_then_names() -> None:
    model = network()
    node = model.graph.nodes[-1]
    assert module_of(node) == "head"
    node.metadata["metadata_props"] = {"pkg.torch.onnx.name_scopes": "['', 'layers.0', 'layers.0.norm', 'softmax_3']"}
    assert module_of(node) == "layers.0/norm"
    node.metadata["metadata_props"] = {"namespace": ": M/layers.0: Layer/layers.0.norm: Norm/softmax_3: aten.softmax"}
    assert module_of(node) == "layers.0/norm"
    node.metadata["metadata_props"] = {"pkg.torch.onnx.name_scopes": "[" * 100_000 + "'" * 99_999}
    assert isinstance(module_of(node), str)


def test_nodes_without_names_are_in_the_module_around_their_neighbours() -> None:
    generator = np.random.default_rng(0)
    with Builder("net") as b:
        x = b.input("x", "f32", (2, 8))
        for name in ("first.weight", "layers.0.fc.weight", "layers.1.fc.weight", "head"):
            x = b.Relu(b.MatMul(x, b.constant(generator.standard_normal((8, 8)).astype(F32), name=name)))
        b.output("y", x)
    found = [(node.op.title, path) for node, path in module_paths(b.model.graph).items() if node.op.title != "Constant"]
    # A product with a parameter of its own that has no path is in no module, and neither is what follows it.
    inner = [("layers", "0", "fc"), ("layers", "0", "fc"), ("layers", "1", "fc"), ("layers", "1", "fc")]
    assert [path for _, path in found] == [("first",), (), *inner[:1], ("layers",), *inner[2:3], (), (), ()]


# Trace


def events_of(profile: ModelProfile) -> list[dict[str, Any]]:
    return list(json.loads(profile.trace())["traceEvents"])


def test_slices_of_the_trace_nest_and_have_their_costs(found: ModelProfile) -> None:
    events = events_of(found)
    steps = [event for event in events if event.get("cat") == "step"]
    modules = [event for event in events if event.get("cat") == "module"]
    assert len(steps) == len(found.engines[0].steps) and modules
    for before, after in pairwise(steps):
        assert round(before["ts"] * 1000) + round(before["dur"] * 1000) == round(after["ts"] * 1000)
    for module in modules:
        first, last = round(module["ts"] * 1000), round((module["ts"] + module["dur"]) * 1000)
        inside = [step for step in steps if first <= round(step["ts"] * 1000) < last]
        assert len(inside) == module["args"]["steps"]
        assert round(sum(step["dur"] for step in inside) * 1000) == round(module["dur"] * 1000)
    conv = next(step for step in steps if step["name"] == "Conv" and step["args"]["operations"])
    assert conv["args"]["operations"] > 0 and conv["args"]["bytes read"] > 0 and conv["args"]["kernel"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["dovetail"]


def test_names_beyond_ascii_are_unescaped_in_the_trace() -> None:
    b = Builder()
    b.output("größe", b.Relu(b.input("x", "f32", (4,))))
    trace = dovetail.profile(b.model, runs=1).trace()
    assert "größe" in trace and json.loads(trace)


@requires_perfetto
def test_perfetto_reads_the_trace(found: ModelProfile, tmp_path: Path) -> None:
    """Perfetto's own parser has each slice, counter and argument, without an error."""
    queries = {
        "slices": "select count(*) as n from slice",
        "counters": "select count(*) as n from counter",
        "last": "select max(ts + dur) - min(ts) as n from slice",
        "arguments": "select count(distinct arg_set_id) as n from slice",
        "errors": "select coalesce(sum(value), 0) as n from stats where severity in ('error', 'data_loss')",
        "conv": "select name as n from slice order by dur desc",
    }
    answers = query_trace(found.trace(), queries, tmp_path)
    events = events_of(found)
    slices = [event for event in events if event["ph"] == "X"]
    assert int(answers["slices"]) == len(slices) and int(answers["arguments"]) >= 1
    assert int(answers["counters"]) == sum(len(event["args"]) for event in events if event["ph"] == "C")
    first, last = min(event["ts"] for event in slices), max(event["ts"] + event["dur"] for event in slices)
    assert int(answers["last"]) == pytest.approx((last - first) * 1000, abs=1000)
    assert answers["errors"] == "0" and answers["conv"] == max(slices, key=lambda event: event["dur"])["name"]


# Page, picture, text


def test_the_page_and_the_picture_are_well_formed_and_have_every_part(found: ModelProfile) -> None:
    page = ElementTree.fromstring(found.html().split("\n", 1)[1])
    headings = ["".join(item.itertext()) for item in page.iter("h2")]
    for title in ("Time by operator", "Time by kernel", "Time by module", "Operators", "Kernels", "Modules", "Steps"):
        assert any(heading.startswith(title) for heading in headings), title
    picture = ElementTree.fromstring(found.svg())
    texts = {item.text for item in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"network", "Time by operator", "Conv"} <= texts
    assert "://" not in found.html().replace("http://www.w3.org/2000/svg", "")
    assert repr(found).startswith("<profile of 'network'") and "in " in repr(found)


def test_a_picture_of_no_steps_is_well_formed() -> None:
    empty = ModelProfile("none", {}, 1, None, [EngineProfile("native", "dovetail", 0.0, 1)])
    ElementTree.fromstring(empty.svg())
    ElementTree.fromstring(empty.html().split("\n", 1)[1])
    assert json.loads(empty.trace())["traceEvents"]


# Peers


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_peer_has_the_operators_of_the_model(engine: str, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    dovetail.save(network(), tmp_path / "m.onnx")
    found = dovetail.profile(tmp_path / "m.onnx", engines=("native", engine), threads=1, runs=2)
    peer = found.engines[1]
    assert peer.run_seconds and {"Conv", "MatMul"} <= {step.operator for step in peer.steps}
    assert peer.step_seconds > 0
    both = [name for name, cells in found.operators() if all(cells)]
    assert "Conv" in both and "MatMul" in both
    assert sum(group.seconds for group in peer.operators()) == pytest.approx(peer.step_seconds)


def test_an_ir_model_is_converted_for_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    dovetail.save(network(), tmp_path / "m.xml")
    (peer,) = dovetail.profile(tmp_path / "m.xml", engines=["onnxruntime"], threads=1, runs=1).engines
    assert peer.steps and "conversion" in peer.notes[0]


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(dovetail.EngineError) as caught:
        dovetail.profile(network(), engines=["tvm"])
    assert caught.value.code == "argument.value"


# Limits


def test_a_run_that_cannot_end_in_time_is_refused_before_it_starts() -> None:
    if native_core.core() is None:
        pytest.skip("needs the native core")
    b = Builder()
    x = b.input("x", "f32", (2048, 2048))
    for _ in range(20):
        x = b.MatMul(x, x)
    b.output("y", x)
    with pytest.raises(dovetail.EngineError) as caught:
        dovetail.profile(b.model, limits=Limits(seconds=0.001))
    assert caught.value.code == "run.time" and "at least" in caught.value.message


# Command


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    return int(caught.value.code or 0)


def test_the_command_prints_tables_and_writes_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "m.onnx")
    dovetail.save(network(), path)
    for name in ("t.json", "p.html", "p.svg"):
        assert command("profile", path, "--runs", "1", "--threads", "1", "-o", str(tmp_path / name)) == 0
        assert (tmp_path / name).stat().st_size > 500
    out, err = capsys.readouterr()
    assert "operator" in out and "Conv" in out and "module" in out and "wrote" in err and "wrote" not in out
    assert command("profile", path, "--runs", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dovetail"] == "profile" and found["engines"][0]["operators"] and found["engines"][0]["steps"]


def test_the_command_refuses_other_files_and_engines(tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    dovetail.save(network(), path)
    assert command("profile", path, "-o", str(tmp_path / "p.png")) == 2
    assert command("profile", path, "--engines", "tvm") == 6


def test_without_a_core_there_are_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "core", lambda: None)
    found = dovetail.profile(network(), threads=1, runs=1)
    assert found.limits is None and all(step.share_of_limit is None for step in found.engines[0].steps)
    assert all(not step.is_native for step in found.engines[0].steps)
    ElementTree.fromstring(found.html().split("\n", 1)[1])
    ElementTree.fromstring(found.svg())
