"""The fuzzer makes the same files again, notices each kind of fault, and what it has found stays mended."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError

import dovetail
import protobuf_mutator
import run as fuzzer
import stages
import xml_mutator
from hostile_models import declared, integers, loop, model_of, node, relus
from minimize import minimized
from seeds import Corpus, File, text_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return some_corpus(tmp_path_factory.mktemp("seeds"))


def some_corpus(folder: Path) -> Corpus:
    """Return a few seeds in both formats."""
    models = {"relus": relus(3), "loop": loop(2, True)}
    files = {name: File(".onnx", model.SerializeToString()) for name, model in models.items()}
    written = {}
    for name, file in files.items():
        dovetail.save(dovetail.load(file.write(folder)), folder / "written.xml")
        written[name] = File(".xml", (folder / "written.xml").read_bytes(), bytes(64))
    texts = {name: text_of(dovetail.load(file.write(folder)), folder) for name, file in files.items()}
    kinds = ("Relu", "Loop", "Add"), ("ReLU", "Loop", "Add"), ("Relu", "Loop", "Add")
    return Corpus(list(files.items()), list(written.items()), list(texts.items()), *kinds)


def test_a_number_makes_the_same_file_again_and_others_make_others(corpus: Corpus) -> None:
    made = [fuzzer.make_file(corpus, "s", index) for index in range(200)]
    assert made == [fuzzer.make_file(corpus, "s", index) for index in range(200)]
    assert len({file for _, file in made}) > 120
    assert made != [fuzzer.make_file(corpus, "t", index) for index in range(200)]


def test_mutations_keep_enough_of_a_model_to_reach_its_rules(corpus: Corpus) -> None:
    """Otherwise the readers alone would be tested."""
    read = 0
    for index in range(200):
        data = protobuf_mutator.mutate(relus(5).SerializeToString(), b"", ("Relu",), Random(index))
        try:
            read += bool(onnx.ModelProto.FromString(data).graph.node)
        except DecodeError:
            continue
    assert read > 120
    text = corpus.ir[0][1].data
    assert len({xml_mutator.mutate(text, b"", text, b"", ("ReLU",), Random(index)) for index in range(100)}) > 60


def count_results(out: str) -> int:
    """Bring mutated files to every stage. For a process of its own: its memory and processor time are bounded."""
    results = [0] * len(stages.STAGES)

    def note(place: int, is_result: bool) -> None:
        results[place] += is_result

    seeds = some_corpus(Path(out))
    for index in range(150):
        _, file = fuzzer.make_file(seeds, "unit", index)
        folder = Path(out) / str(index)
        folder.mkdir()
        stages.run_file(file, folder, Random(index), note)
    print(results)
    return not all(results)


def in_own_process(call: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *(each for each in sys.path if each)])
    code = f"import sys, test_fuzz; sys.exit(test_fuzz.{call})"
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


def test_mutated_files_end_in_results_or_errors_of_ours(tmp_path: Path) -> None:
    found = in_own_process(f"count_results({str(tmp_path)!r})")
    assert found.returncode == 0, found.stdout + found.stderr


def _raise(self: Any) -> None:
    raise KeyError("planted")


def _crash(self: Any) -> None:
    os.abort()


def _spin(self: Any) -> None:
    while True:
        pass


def _allocate(self: Any) -> None:
    np.ones(1 << 28)


FAULTS = {
    "exception": (_raise, "KeyError-outside"),
    "crash": (_crash, "crash-SIGABRT"),
    "hang": (_spin, "hang-SIGXCPU"),
    "memory": (_allocate, "MemoryError"),
}


def plant(name: str, out: str) -> int:
    """Let ``show`` have a fault, and fuzz. For a process of its own: its memory is bounded."""
    stages._Actions.show = FAULTS[name][0]  # type: ignore[method-assign]
    stages.SECONDS = 0
    folder = Path(out).parent
    patched: Any = fuzzer
    patched.make_corpus = lambda: some_corpus(folder)
    sys.argv = ["run.py", "--seed", "s", "--count", "8", "--workers", "1", "--out", out]
    return fuzzer.main()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    found = in_own_process(f"plant({name!r}, {str(tmp_path / 'found')!r})")
    assert found.returncode == 1, found.stderr
    key = FAULTS[name][1]
    (folder,) = [each for each in (tmp_path / "found").iterdir() if each.name.startswith(key)]
    assert (folder / "seen").read_text() and "--seed s --only" in (folder / "stack.txt").read_text()
    assert [each for each in folder.iterdir() if each.name in ("model.onnx", "model.xml")]
    assert f"finding: show: {key}" in found.stdout


@pytest.mark.slow
def test_a_finding_is_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def show(self: Any) -> None:
        assert not any(each.name == "t3" for each in self.model.graph.values()), "planted"

    monkeypatch.setattr(stages._Actions, "show", show)
    folder = tmp_path / "AssertionError"
    folder.mkdir()
    File(".onnx", relus(8).SerializeToString()).write(folder)
    minimized(folder)
    shrunk = onnx.load(folder / "model.onnx")
    assert "t3" in str(shrunk) and len(shrunk.SerializeToString()) < len(relus(8).SerializeToString())


# What it has found


@pytest.mark.parametrize("seed", [float("inf"), float("nan"), 1e30, 0.5, -1.0, 3.0])
def test_a_seed_that_ir_has_no_number_for_is_written(seed: float, tmp_path: Path) -> None:
    model = model_of([node("RandomUniform", [], ["y"], shape=[4], seed=seed)], [], [declared("y")], [integers("unused", 1)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    loaded = dovetail.load(tmp_path / "model.onnx")
    dovetail.save(loaded, tmp_path / "model.xml")
    again = dovetail.run(tmp_path / "model.xml", {})["y"]
    np.testing.assert_array_equal(again, dovetail.run(tmp_path / "model.xml", {})["y"])


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("kernel", [(1 << 29,), (3, 1 << 29), (1 << 29, 3), (1 << 29, 1 << 29)], ids=str)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pooling_kernel_larger_than_its_input_costs_no_more_than_the_input(
    kind: str, kernel: tuple[int, ...], engine: str
) -> None:
    """Places of a window that are padding in every window are neither allocated nor visited."""
    x = np.arange(1, 3 * 5 ** len(kernel) + 1, dtype=np.float32).reshape(1, 3, *(5,) * len(kernel))

    def pooled(kernel: tuple[int, ...], engine: str) -> Any:
        with dovetail.Builder("m") as b:
            pool = getattr(b, kind)
            b.output(
                "y", pool(b.input("x", "f32", x.shape), kernel_shape=kernel, strides=(2,) * len(kernel), auto_pad="same_upper")
            )
        return dovetail.compile(b.model, engine, limits=dovetail.Limits(memory=1 << 26))({"x": x})["y"]

    small = tuple(min(size, 31) for size in kernel)
    np.testing.assert_allclose(pooled(kernel, engine), pooled(small, "interpreter"), rtol=1e-5)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_windows_far_apart_are_refused_or_cheap(kind: str, engine: str) -> None:
    with dovetail.Builder("m") as b:
        x = b.input("x", "f32", (1, 1, 5))
        b.output("y", getattr(b, kind)(x, kernel_shape=(1 << 28,), strides=(1 << 28,), pads=((1 << 28) - 1, 1 << 28)))
    with pytest.raises(dovetail.EngineError) as caught:
        dovetail.compile(b.model, engine, limits=dovetail.Limits(memory=1 << 26))(np.ones((1, 1, 5), np.float32))
    assert caught.value.code == "run.memory"


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_tables_of_a_resize_count_as_memory(mode: str, engine: str, tmp_path: Path) -> None:
    made = node("Resize", ["x", "", "", "s"], ["y"], mode=mode)
    constants = [integers("s", 1, 1, 1 << 46, 2)]
    model = model_of([made], [declared("x", [1, 1, 2, 2])], [declared("y")], constants)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.compile(tmp_path / "model.onnx", engine)(np.ones((1, 1, 2, 2), np.float32))
    assert caught.value.code == "run.memory"
    if engine == "native":
        with pytest.raises(dovetail.DovetailError) as caught:
            dovetail.plan(tmp_path / "model.onnx", rounds=0)
        assert caught.value.code == "run.memory"


def test_a_condition_of_a_loop_that_is_a_sequence_is_refused(tmp_path: Path) -> None:
    model = loop(3, True, goes_on=False)
    (made,) = [each for each in model.graph.node if each.op_type == "Loop"]
    body = made.attribute[0].g
    body.node[0].CopyFrom(node("SequenceConstruct", ["s"], ["co"]))
    body.output[0].CopyFrom(onnx.helper.make_tensor_sequence_value_info("co", onnx.TensorProto.FLOAT, None))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(tmp_path / "model.onnx", strict=True)
    assert "shape.single" in {each.code for each in caught.value.diagnostics}


def test_elements_of_a_string_tensor_that_are_no_strings_are_counted(tmp_path: Path) -> None:
    made = node("Trilu", ["x"], ["y"])
    model = model_of([made], [declared("x", [2, 2], onnx.TensorProto.STRING)], [declared("y", None, onnx.TensorProto.STRING)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    texts = np.array([["a", "b"], ["c", "d"]], object)
    for engine in ("native", "interpreter"):
        assert dovetail.compile(tmp_path / "model.onnx", engine)(texts)["y"][0, 1] == "b"


def test_a_layer_whose_weights_have_no_known_rank_is_planned(tmp_path: Path) -> None:
    made = node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=2)
    inputs = [declared("x", [2, 1, 3]), declared("w"), declared("r", [1, 6, 2])]
    (tmp_path / "model.onnx").write_bytes(model_of([made], inputs, [declared("h")]).SerializeToString())
    draw = np.random.default_rng(0)
    given = {
        name: draw.standard_normal(shape).astype("f")
        for name, shape in zip("xwr", ((2, 1, 3), (1, 6, 3), (1, 6, 2)), strict=True)
    }
    answers = [dovetail.run(tmp_path / "model.onnx", given, engine)["h"] for engine in ("native", "interpreter")]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-5, atol=1e-6)


def test_a_shape_of_2_to_the_40_sizes_gives_no_rank(tmp_path: Path) -> None:
    made = node("Expand", ["x", "shape"], ["y"])
    inputs = [declared("x", [1]), declared("shape", [2**40], onnx.TensorProto.INT64)]
    (tmp_path / "model.onnx").write_bytes(model_of([made], inputs, [declared("y")]).SerializeToString())
    assert dovetail.load(tmp_path / "model.onnx").outputs[0].shape is None


def rewritten(model: Any, path: Path, old: str, new: str) -> Path:
    """Return the IR of a model with one text replaced."""
    dovetail.save(model, path)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_a_window_that_is_no_vector_is_refused(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        x, window = b.input("x", "f32", (1, 20, 1)), b.input("window", "f32", (8,))
        b.output("y", b.STFT(x, 4, window, 8))
    path = rewritten(b.model, tmp_path / "model.xml", 'shape="8"', 'shape=""')
    path.write_text(path.read_text(encoding="utf-8").replace("<dim>8</dim>", ""), encoding="utf-8")
    with pytest.raises(dovetail.DovetailError):
        dovetail.load(path, strict=True)


def test_a_number_of_trips_without_elements_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(loop(3).SerializeToString())
    dovetail.save(dovetail.load(tmp_path / "model.onnx"), tmp_path / "model.xml")
    text = (tmp_path / "model.xml").read_text(encoding="utf-8")
    old = 'element_type="i64" shape="" offset="0" size="8"'
    assert old in text
    (tmp_path / "model.xml").write_text(text.replace(old, 'element_type="i64" shape="0" offset="0" size="0"'), encoding="utf-8")
    with pytest.raises(dovetail.DovetailError):
        dovetail.load(tmp_path / "model.xml", strict=True)


def test_exact_values_of_a_center_crop_pad_of_another_shape_are_dropped(tmp_path: Path) -> None:
    made = node("CenterCropPad", ["x", "shape"], ["y"])
    inputs = [declared("x", [3], onnx.TensorProto.INT64), declared("shape", [None], onnx.TensorProto.INT64)]
    model = model_of([made], inputs, [declared("y", None, onnx.TensorProto.INT64)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    report = dovetail.plan(tmp_path / "model.onnx", rounds=0)
    assert report.steps


def test_an_input_without_an_element_type_is_planned_for(tmp_path: Path) -> None:
    with dovetail.Builder("m") as b:
        x = b.input("x", "f32", (2, 5))
        b.output("y", b.Multiply(x, b.Sigmoid(x)))
    path = rewritten(b.model, tmp_path / "model.xml", 'element_type="f32"', 'element_type="undefined"')
    data = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    for engine in ("native", "interpreter"):
        np.testing.assert_allclose(dovetail.run(path, {"x": data}, engine)["y"], data / (1 + np.exp(-data)), rtol=1e-5)


def test_an_inverse_transform_of_one_frequency_is_refused(tmp_path: Path) -> None:
    made = node("DFT", ["x"], ["y"], axis=1, inverse=1, onesided=1)
    model = model_of([made], [declared("x", [6, 1, 10, 2])], [declared("y")])
    model.opset_import[0].version = 19
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(tmp_path / "model.onnx", strict=True)
    assert {each.code for each in caught.value.diagnostics} == {"attribute.range"}


@pytest.mark.parametrize(("onesided", "frequencies"), [(0, 0), (1, 1)])
def test_a_transform_of_no_elements_is_an_empty_sum(tmp_path: Path, onesided: int, frequencies: int) -> None:
    model = model_of([node("DFT", ["x"], ["y"], axis=1, onesided=onesided)], [declared("x", [1, 0, 10, 1])], [declared("y")])
    model.opset_import[0].version = 19
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for engine in ("native", "interpreter"):
        y = dovetail.run(tmp_path / "model.onnx", {"x": np.zeros((1, 0, 10, 1), np.float32)}, engine)["y"]
        np.testing.assert_array_equal(y, np.zeros((1, frequencies, 10, 2), np.float32))


def test_a_transform_over_no_axes_is_refused(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (1, 10, 1))
        b.output("y", b.DFT(x, [1], onesided=True))
    old = 'element_type="i64" shape="1" offset="8" size="8"'
    path = rewritten(b.model, tmp_path / "model.xml", old, 'element_type="i64" shape="0" offset="8" size="0"')
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(path, strict=True)
    assert {each.code for each in caught.value.diagnostics} == {"attribute.length"}


@pytest.mark.parametrize("offset", [8, 16])
def test_a_frame_length_and_a_step_without_elements_are_refused(offset: int, tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        x, window = b.input("x", "f32", (1, 20, 1)), b.input("window", "f32", (8,))
        b.output("y", b.STFT(x, 4, window, 8))
    old, new = (f'element_type="i64" shape="{shape}" offset="{offset}" size="{size}"' for shape, size in (("", 8), (0, 0)))
    path = rewritten(b.model, tmp_path / "model.xml", old, new)
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(path, strict=True)
    assert "op.failed" not in {each.code for each in caught.value.diagnostics}


@pytest.mark.parametrize("sizes", [(0, 2**62), (2**62, 0)])
def test_integers_of_no_elements_and_a_huge_axis_are_loaded_or_refused(sizes: tuple[int, int], tmp_path: Path) -> None:
    model = model_of(
        [node("Trilu", ["x"], ["y"])],
        [declared("x", list(sizes), onnx.TensorProto.INT64)],
        [declared("y", None, onnx.TensorProto.INT64)],
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    try:
        dovetail.load(tmp_path / "model.onnx")
    except dovetail.DovetailError as error:
        assert "op.failed" not in {each.code for each in error.diagnostics}


def test_an_operator_of_unknown_type_without_an_opset_is_loaded_or_refused(tmp_path: Path) -> None:
    made = [node("Unheard", ["x"], ["scale"], domain="nowhere"), node("QuantizeLinear", ["x", "scale"], ["y"])]
    model = model_of(made, [declared("x", [3])], [declared("y", None, onnx.TensorProto.UINT8)])
    del model.opset_import[:]
    model.opset_import.add(domain="nowhere", version=1)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with suppress(dovetail.DovetailError):
        dovetail.load(tmp_path / "model.onnx")


def test_weights_of_no_axes_are_refused_by_name(tmp_path: Path) -> None:
    kinds = {"x": onnx.TensorProto.UINT8, "zx": onnx.TensorProto.UINT8, "w": onnx.TensorProto.INT8, "zw": onnx.TensorProto.INT8}
    kinds |= {"zy": onnx.TensorProto.UINT8, "bias": onnx.TensorProto.INT32}
    shapes: dict[str, Any] = {"x": [2, 4, 7, 6], "bias": [6]}
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"]
    inputs = [declared(name, shapes.get(name, []), kinds.get(name, onnx.TensorProto.FLOAT)) for name in names]
    model = model_of([node("QLinearConv", names, ["y"])], inputs, [declared("y", None, onnx.TensorProto.UINT8)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(tmp_path / "model.onnx", strict=True)
    assert {each.code for each in caught.value.diagnostics} == {"shape.rank"}


def test_a_loop_that_nothing_ends_is_not_written_to_ir(tmp_path: Path) -> None:
    """The reader of IR refuses it."""
    model = loop(2, True)
    (made,) = [each for each in model.graph.node if each.op_type == "Loop"]
    made.input[0], made.input[1] = "", "always"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "always"))
    body = made.attribute[0].g
    body.node[0].CopyFrom(node("Identity", [body.input[1].name], [body.output[0].name]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    loaded = dovetail.load(tmp_path / "model.onnx")
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.save(loaded, tmp_path / "model.xml")
    assert {each.code for each in caught.value.diagnostics} == {"op.unsupported"}


def test_a_binarizer_of_texts_is_refused(tmp_path: Path) -> None:
    made = node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml")
    model = model_of([made], [declared("x", [5], onnx.TensorProto.STRING)], [declared("y")])
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 4))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(tmp_path / "model.onnx", strict=True)
    assert {each.code for each in caught.value.diagnostics} == {"type.class"}


def test_a_list_of_tensors_of_unknown_size_is_compared() -> None:
    x, y = (onnx.helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, [None]) for name in "xy")
    model = model_of([node("Identity", ["x"], ["y"])], [x], [y])
    assert dovetail.diff(model, model).is_same


@pytest.mark.parametrize("wrong", ["element type", "size"])
def test_readers_of_an_output_are_inferred_from_its_declared_type(wrong: str, tmp_path: Path) -> None:
    """A contradiction is found when the file is read, so that the text form of the model loads again."""
    unknown = node("Unknown", ["x"], ["y"], domain="private")
    reader = node("ReduceMax", ["x", "y"], ["z"]) if wrong == "element type" else node("Add", ["y", "seven"], ["z"])
    y = declared("y", [3] if wrong == "size" else [1])
    model = model_of([unknown, reader], [declared("x", [1, 3])], [y, declared("z", None)], [integers("unused", 1)])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(7, np.float32), "seven"))
    model.opset_import.append(onnx.helper.make_opsetid("private", 1))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    loaded = dovetail.load(tmp_path / "model.onnx")
    assert {item.code for item in loaded.warnings} == {"type.class" if wrong == "element type" else "shape.broadcast"}
    dovetail.save(loaded, tmp_path / "model.dt")
    again = dovetail.load(tmp_path / "model.dt")
    assert [value.type for value in again.graph.outputs] == [value.type for value in loaded.graph.outputs]


def test_a_rule_that_fails_is_our_error_and_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = File(".onnx", relus(2).SerializeToString())
    relu = type(next(iter(dovetail.load(file.write(tmp_path)).graph.nodes)).op)

    def shape(self: Any, x: Any) -> Any:
        raise IndexError("planted")

    monkeypatch.setattr(relu, "shape", shape)
    with pytest.raises(dovetail.RuleError) as caught:
        dovetail.load(tmp_path / "model.onnx", strict=True)
    assert {each.code for each in caught.value.diagnostics} == {"op.failed"}
    with pytest.raises(stages.Finding, match="load"):
        stages._refuse_unforeseen("load", caught.value)
