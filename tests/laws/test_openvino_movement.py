"""IR that OpenVINO writes: what no core operator spells for itself means what OpenVINO makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.errors import DovetailError

openvino = pytest.importorskip("openvino")
from openvino import opset1, opset3, opset5, opset7, opset8, opset12, opset15  # noqa: E402


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def vector(*items: int, kind: str = "int64") -> Any:
    return opset1.constant(np.array(items, dtype=kind))


def saved(folder: Path, write: Callable[..., Any], *arrays: Any, dynamic: bool = False) -> Path:
    """Return the IR of one operator over inputs like these, all sizes open with ``dynamic``."""
    xs = [
        opset1.parameter([-1] * array.ndim if dynamic else list(array.shape), array.dtype, name=f"x{index}")
        for index, array in enumerate(arrays)
    ]
    for index, x in enumerate(xs):
        x.output(0).set_names({f"x{index}"})
    made = write(*xs)
    made.output(0).set_names({"y"})
    path = folder / "model.xml"
    openvino.save_model(openvino.Model([opset1.result(made.output(0))], xs), path, compress_to_fp16=False)
    return path


def strided(begin: Any, end: Any, strides: Any = (), **masks: Any) -> Callable[..., Any]:
    names = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    steps = strides or (1,) * len(begin)
    given = [list(masks.get(name, [0] * len(begin))) for name in names]
    return lambda x: opset1.strided_slice(x, vector(*begin), vector(*end), vector(*steps), *given)


CUBE = ramp(2, 3, 4)
SPELLINGS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bounds": (strided((0, 1), (2, 3)), (CUBE,)),
    "fewer bounds than axes": (strided((1,), (2,)), (CUBE,)),
    "bounds from the end": (strided((0, -2, -3), (2, -1, 100)), (CUBE,)),
    "nothing between the bounds": (strided((1, 2), (1, 1)), (CUBE,)),
    "strides": (strided((0, 0, 0), (2, 3, 4), (1, 2, 3)), (CUBE,)),
    "strides backward": (strided((1, 2, 3), (0, 0, 0), (-1, -1, -2)), (CUBE,)),
    "masked bounds": (strided((1, 1, 1), (1, 1, 1), begin_mask=(1, 0, 1), end_mask=(0, 1, 1)), (CUBE,)),
    "masked bounds backward": (strided((1, 1, 1), (1, 1, 1), (-1, -1, -1), begin_mask=(1, 1, 0), end_mask=(1, 0, 1)), (CUBE,)),
    "before the beginning, backward": (strided((-9,), (-10,), (-1,)), (ramp(5),)),
    "a new axis": (strided((0, 0, 1), (0, 2, 3), new_axis_mask=(1, 0, 0)), (CUBE,)),
    "new axes at the end": (strided((0, 0, 0, 0), (2, 3, 4, 0), new_axis_mask=(0, 0, 0, 1)), (CUBE,)),
    "an axis that shrinks": (strided((0, 1), (2, 2), shrink_axis_mask=(0, 1)), (CUBE,)),
    "axes that shrink": (strided((1, -1, 0), (2, 0, 1), shrink_axis_mask=(1, 1, 0)), (CUBE,)),
    "an axis that shrinks under a mask": (strided((1, 1), (2, 2), begin_mask=(1, 0), shrink_axis_mask=(1, 0)), (CUBE,)),
    "an ellipsis": (strided((0, 9, 1), (1, 9, 3), ellipsis_mask=(0, 1, 0)), (CUBE,)),
    "an ellipsis of no axes": (strided((0, 9, 1, 1), (1, 9, 3, 2), ellipsis_mask=(0, 1, 0, 0)), (CUBE,)),
    "an ellipsis in front": (strided((9, 1), (9, 3), ellipsis_mask=(1, 0)), (CUBE,)),
    "all masks": (
        strided(
            (0, 9, 1, 0), (0, 9, 2, 2), new_axis_mask=(1, 0, 0, 0), ellipsis_mask=(0, 1, 0, 0), shrink_axis_mask=(0, 0, 1, 0)
        ),
        (CUBE,),
    ),
    "an ellipsis and a new axis in one place": (strided((0, 1), (0, 2), new_axis_mask=(1, 0), ellipsis_mask=(1, 0)), (CUBE,)),
    "a new axis and one that shrinks in one place": (
        strided((0, 1), (0, 2), new_axis_mask=(1, 0), shrink_axis_mask=(1, 0)),
        (CUBE,),
    ),
    "32-bit bounds": (
        lambda x: opset1.strided_slice(
            x, vector(1, kind="int32"), vector(2**31 - 1, kind="int32"), vector(1, kind="int32"), [0], [0]
        ),
        (ramp(5),),
    ),
    "computed bounds": (
        lambda x, b, e: opset1.strided_slice(x, b, e, vector(1, 1), [0, 0], [0, 1]),
        (CUBE, np.array([1, 1]), np.array([2, 0])),
    ),
    "a computed place": (
        lambda x, b: opset1.strided_slice(x, b, vector(1, 3), vector(1, 1), [0, 0], [0, 0], [0, 0], [1, 0]),
        (CUBE, np.array([0, 1])),
    ),
    "explicit broadcast": (lambda x: opset3.broadcast(x, vector(2, 4, 3), vector(0, 2), "EXPLICIT"), (ramp(2, 3),)),
    "explicit broadcast of a 1": (lambda x: opset3.broadcast(x, vector(2, 4, 3), vector(0, 2), "EXPLICIT"), (ramp(2, 1),)),
    "broadcast one way": (lambda x: opset3.broadcast(x, vector(4, 2, 3)), (ramp(2, 1),)),
    "broadcast both ways": (lambda x: opset3.broadcast(x, vector(1, 3), broadcast_spec="BIDIRECTIONAL"), (ramp(2, 1),)),
    "the first Broadcast": (lambda x: opset1.broadcast(x, vector(4, 2, 3)), (ramp(2, 1),)),
    "Pad that crops": (lambda x: opset12.pad(x, vector(-1, 2), vector(1, -1), "edge"), (ramp(3, 4),)),
    "Pad with a value": (
        lambda x: opset12.pad(x, vector(1, 2), vector(0, 1), "constant", opset1.constant(np.float32(7))),
        (ramp(3, 4),),
    ),
    "Pad, the first": (lambda x: opset1.pad(x, vector(1, 2), vector(0, 1), "symmetric"), (ramp(3, 4),)),
    "Pad by computed pads": (
        lambda x, b, e: opset12.pad(x, b, e, "constant"),
        (ramp(3, 4), np.array([1, 0]), np.array([0, 2])),
    ),
    "Squeeze of an axis that stays": (lambda x: opset1.squeeze(x, vector(0, 1)), (ramp(1, 2, 1),)),
    "Squeeze 15": (lambda x: opset15.squeeze(x, vector(0, 1), True), (ramp(1, 2, 1),)),
    "Gather outside": (lambda x, i: opset8.gather(x, i, vector(0)), (ramp(3, 2), np.array([0, 3, -3, -4]))),
    "Gather with a batch counted from the end": (
        lambda x, i: opset8.gather(x, i, vector(1), -1),
        (ramp(2, 5), np.array([[0, 0, 4], [4, 0, 0]])),
    ),
    "Gather 7": (lambda x, i: opset7.gather(x, i, vector(1), 1), (ramp(2, 5), np.array([[0, 4], [4, 0]]))),
    "Gather, the first": (lambda x, i: opset1.gather(x, i, vector(1)), (ramp(2, 5), np.array([[0, 4], [4, 0]], np.int32))),
    "GatherND 5 with two batch axes": (lambda x, i: opset5.gather_nd(x, i, 2), (ramp(2, 3, 4, 2), np.zeros((2, 3, 1), np.int64))),
    "GatherND 5": (lambda x, i: opset5.gather_nd(x, i, 1), (ramp(2, 3, 2), np.array([[1], [0]]))),
    "ScatterNDUpdate that subtracts": (
        lambda x, i, u: opset15.scatter_nd_update(x, i, u, "sub"),
        (ramp(4), np.array([[1], [1], [3]]), np.float32([1, 2, 3])),
    ),
    "ShapeOf, the first": (lambda x: opset1.shape_of(x), (CUBE,)),
    "ShapeOf of 32 bits": (lambda x: opset3.shape_of(x, "i32"), (CUBE,)),
}
every_spelling = pytest.mark.parametrize("name", SPELLINGS)


def run_openvino(path: Path, arrays: tuple[Any, ...]) -> Any:
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(list(arrays))[0]


@every_spelling
@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "open sizes"])
def test_an_ir_of_openvino_gives_the_results_of_openvino(name: str, dynamic: bool, tmp_path: Path) -> None:
    write, arrays = SPELLINGS[name]
    path = saved(tmp_path, write, *arrays, dynamic=dynamic and not name.startswith("computed") and "Pad by" not in name)
    inputs = {f"x{index}": array for index, array in enumerate(arrays)}
    try:
        ours = dovetail.run(dovetail.load(path), inputs)["y"]
    except DovetailError as error:
        assert error.code == "type.unknown" and dynamic, error
        pytest.skip(str(error))
    # Open ranks, which some of these lead to, OpenVINO does not run.
    theirs = run_openvino(saved(tmp_path, write, *arrays), arrays)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@every_spelling
def test_an_ir_of_openvino_converts_to_onnx(name: str, tmp_path: Path) -> None:
    write, arrays = SPELLINGS[name]
    if name == "Gather outside":
        pytest.skip("ONNX refuses an index outside at run time")
    path = saved(tmp_path, write, *arrays)
    model = dovetail.load(path)
    target = tmp_path / "model.onnx"
    dovetail.save(model, target, opset=oracles.RUNTIME_OPSET)
    found = oracles.run_onnxruntime(target.read_bytes(), {f"x{index}": array for index, array in enumerate(arrays)})
    np.testing.assert_array_equal(found[0], run_openvino(path, arrays))


@every_spelling
def test_an_ir_of_openvino_is_saved_as_an_equivalent_ir(name: str, tmp_path: Path) -> None:
    write, arrays = SPELLINGS[name]
    path = saved(tmp_path, write, *arrays)
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / "model.xml"
    dovetail.save(dovetail.load(path), again)
    np.testing.assert_array_equal(run_openvino(again, arrays), run_openvino(path, arrays))
