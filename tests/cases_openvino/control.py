"""Control flow, and state."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases_openvino import Row, numbers


def _if(openvino: Any, condition: Any, x: Any, y: Any) -> Any:
    from openvino import opset8 as o

    def body(of: Any) -> Any:
        first, second = (o.parameter([2, 3], np.float32) for _ in range(2))
        return openvino.Model([of(first, second), o.multiply(first, first)], [first, second], "branch"), first, second

    node = o.if_op(condition)
    bodies = [body(o.add), body(o.subtract)]
    node.set_then_body(bodies[0][0])
    node.set_else_body(bodies[1][0])
    for place, value in ((1, x), (2, y)):
        node.set_input(value.output(0), bodies[0][place], bodies[1][place])
    for index in range(2):
        node.set_output(bodies[0][0].results[index], bodies[1][0].results[index])
    return node


def _iterator(stride: int, start: int, end: int) -> Any:
    def build(openvino: Any, x: Any, state: Any, weights: Any) -> Any:
        from openvino import opset8 as o

        part, before, factor = (
            o.parameter([2, 1, 3], np.float32),
            o.parameter([2, 1, 3], np.float32),
            o.parameter([3], np.float32),
        )
        after = o.add(o.multiply(before, factor), part)
        results = [o.result(after), o.result(o.tanh(after))]
        node = o.tensor_iterator()
        node.set_body(openvino.Model(results, [part, before, factor], "body"))
        node.set_sliced_input(part, x.output(0), start, stride, 1, end, 1)
        node.set_merged_input(before, state.output(0), results[0].output(0))
        node.set_invariant_input(factor, weights.output(0))
        return [
            node.get_iter_value(results[0].output(0), -1),
            node.get_concatenated_slices(results[1].output(0), start, stride, 1, end, 1),
        ]

    return build


def _loop(limit: int) -> Any:
    def build(openvino: Any, x: Any, trips: Any) -> Any:
        from openvino import opset8 as o

        before, number = o.parameter([2], np.float32), o.parameter([], np.int64)
        after = o.add(before, o.convert(number, "f32"))
        goes_on = o.less(number, o.constant(np.int64(limit)))
        results = [o.result(goes_on), o.result(after), o.result(o.unsqueeze(after, o.constant(np.int64(0))))]
        node = o.loop(trips, o.constant(True))
        node.set_function(openvino.Model(results, [number, before], "body"))
        node.set_special_body_ports([0, 0])
        node.set_merged_input(before, x.output(0), results[1].output(0))
        return [node.get_iter_value(results[1].output(0), -1), node.get_concatenated_slices(results[2].output(0), 0, 1, 1, -1, 0)]

    return build


def _state(version: int, with_first: bool) -> Any:
    def build(openvino: Any, x: Any) -> Any:
        from openvino import opset1, opset3, opset6
        from openvino.op.util import Variable, VariableInfo

        info = VariableInfo()
        info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([2, 3]), openvino.Type.f32, "memory"
        variable = Variable(info)
        first = opset1.constant(numbers(2, 3, seed=5))
        if version == 3:
            before = opset3.read_value(first, "memory")
            after = opset1.add(before, x)
            sink = opset3.assign(after, "memory")
        else:
            before = opset6.read_value(first, variable) if with_first else opset6.read_value(variable)
            after = opset1.add(before, x)
            sink = opset6.assign(after, variable)
        return opset1.multiply(after, opset1.constant(np.float32(2))).outputs(), [sink]

    return build


_LOOP = (numbers(2), np.array(4, np.int64))
ROWS: list[Row] = [
    *(
        Row("If-8", (np.array(condition), numbers(2, 3), numbers(2, 3, seed=1)), name=str(condition), build=_if)
        for condition in (True, False)
    ),
    Row("TensorIterator-1", (numbers(2, 4, 3), numbers(2, 1, 3), numbers(3)), name="forward", build=_iterator(1, 0, -1)),
    Row("TensorIterator-1", (numbers(2, 4, 3), numbers(2, 1, 3), numbers(3)), name="backward", build=_iterator(-1, -1, 0)),
    *(Row("Loop-5", _LOOP, name=f"until {limit}", build=_loop(limit)) for limit in (100, 2)),
    *(
        Row(f"{kind}-{version}", (numbers(2, 3),), name=name, build=_state(version, with_first))
        for kind in ("ReadValue", "Assign")
        for version, with_first, name in ((3, True, "begun"), (6, True, "begun"), (6, False, "of zeros"))
    ),
]
