"""Native steps of If and Loop: their operands, and the programs of their subgraphs, bound when a run reaches the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import NO_BUFFER, Operand, Step
from dovetail.engine.run.step_encoding import OperandRow, encode_operand
from dovetail.engine.run.subgraphs import CompiledIf, CompiledLoop, Subgraph, TensorShape
from dovetail.ir.graph import Value
from dovetail.ir.limits import active

if TYPE_CHECKING:
    from dovetail.engine.run.executable import Executable
    from dovetail.engine.run.python_steps import OperandReader


class ControlStep:
    """ControlStep is an If or Loop in a program; ``number`` is its index among the native steps.

    ``constants``: the arrays of constant operands. ``method``: the core's method that adds the step to a program, called with
    ``arguments``.
    """

    method: str
    arguments: tuple[Any, ...]

    def __init__(self, number: int, step: Step, tensor_map: TensorMap) -> None:
        assert step.call is not None
        self.number = number
        self.constants: list[np.ndarray[Any, Any]] = []
        self._bound: dict[int, Executable] = {}
        self._reads: dict[int, list[int]] = {}
        node = step.call.nodes[0]
        operands = {id(tensor): operand for tensor, operand in zip(step.call.reads, step.reads, strict=True)}
        self.inputs = [None if x is None else self._operand_of(tensor_map.of(x), operands) for x in node.inputs]
        self.outputs = list(step.writes)
        if len(self.outputs) != len(node.outputs) or any(_is_unwritable(operand) for operand in self.outputs):
            raise ValueError("an output whose shape is known only at run time")

    def _operand_of(self, tensor: RunTensor, operands: dict[int, Operand | None]) -> Operand:
        operand = operands.get(id(tensor))
        if operand is not None:
            return operand
        if tensor.data is None:
            raise ValueError("an input whose shape is known only at run time")
        return Operand(tensor, NO_BUFFER, 0, tensor.sizes, tensor.data.strides, tensor.data)

    def _row(self, operand: Operand | None) -> OperandRow:
        if operand is None:
            raise ValueError("an omitted input")
        if operand.data is not None:
            self.constants.append(operand.data)
        return encode_operand(operand)

    @property
    def is_native(self) -> bool:
        """True if the core runs all steps of the bound programs."""
        return all(program.is_native for program in self._bound.values())

    def encode_subgraphs(self) -> list[tuple[int, Executable, list[int]]]:
        """Return the arguments of ``bind_subgraph`` for each bound subgraph: index, program, indices of the program's inputs."""
        return [(index, program, self._reads[index]) for index, program in self._bound.items()]

    def programs(self) -> Iterator[tuple[Subgraph, Executable]]:
        """Yield the bound subgraphs, with their programs."""
        for index, program in list(self._bound.items()):
            yield self._subgraph_at(index), program

    def _subgraph_at(self, index: int) -> Subgraph:
        """Return the subgraph that the core identifies by ``index``."""
        raise NotImplementedError

    def bind(self, executable: Executable, read: OperandReader) -> bool | None:
        """Bind the subgraph that the run needs; return whether it has a native program, or None if it was bound before."""
        raise NotImplementedError

    def _bind(
        self,
        executable: Executable,
        index: int,
        subgraph: Subgraph,
        inputs: Sequence[TensorShape | None],
        numbers: dict[int, int],
    ) -> bool | None:
        """Bind a program for ``inputs``; ``numbers`` are the indices by which the core identifies the inputs."""
        if index in self._bound:
            return None
        program = subgraph.native_executable(inputs)
        if (
            program is None
            or executable.program is None
            or [TensorShape.of(tensor) for tensor in program.plan.outputs] != self._results()
        ):
            return False
        if (usage := active()) is not None:
            usage.count_memory(program.run_bytes, "the run")
            usage.count_memory(-program.run_bytes, "the run")
        try:
            reads = [numbers[position] for position in subgraph.reads]
            executable.program.bind_subgraph(self.number, index, program.program, reads)
        except ValueError:
            return False
        self._reads[index] = reads
        self._bound[index] = program
        executable.constants.append(program.constants)
        executable.subprograms.append(program)
        return True

    def _results(self) -> list[TensorShape]:
        """Return the shapes of the subgraph's outputs."""
        raise NotImplementedError


class IfStep(ControlStep):
    """IfStep is an If among the native steps."""

    method = "add_if"

    def __init__(self, number: int, step: Step, tensor_map: TensorMap, op: CompiledIf, program: Any) -> None:
        super().__init__(number, step, tensor_map)
        assert op.programs is not None
        self._programs = op.programs
        self._captures = sorted({position for subgraph in op.programs for position in subgraph.reads})
        condition, *captures = self.inputs
        assert condition is not None
        self._condition = condition
        rows = [self._row(captures[position]) for position in self._captures]
        self.arguments = (self._row(condition), rows, list(map(encode_operand, self.outputs)))
        program.add_if(*self.arguments)

    def _subgraph_at(self, index: int) -> Subgraph:
        return self._programs[index]

    def bind(self, executable: Executable, read: OperandReader) -> bool | None:
        index = 0 if bool(read(self._condition).reshape(())) else 1
        shapes = [None if operand is None else TensorShape.of_operand(operand) for operand in self.inputs[1:]]
        numbers = {position: number for number, position in enumerate(self._captures)}
        return self._bind(executable, index, self._programs[index], shapes, numbers)

    def _results(self) -> list[TensorShape]:
        return [TensorShape.of_operand(operand) for operand in self.outputs]


class LoopStep(ControlStep):
    """LoopStep is a Loop among the native steps."""

    method = "add_loop"

    def __init__(self, number: int, step: Step, tensor_map: TensorMap, op: CompiledLoop, program: Any) -> None:
        super().__init__(number, step, tensor_map)
        assert op.program is not None
        self._op, self._subgraph = op, op.program
        self.inputs += [None] * (2 - len(self.inputs))
        trip_count, condition, *inputs = self.inputs
        first = op.carried + len(op.scan_inputs)
        self._parts = [
            (None if operand is None else TensorShape.of_operand(operand, axis, size))
            for operand, (axis, size, _) in zip(inputs[op.carried : first], op.scan_inputs, strict=True)
        ]
        # The inputs of the body are the iteration's index, states, parts of scan inputs and captures, in this order.
        self._captures = [position for position in op.program.reads if position > first]
        states, scanned = inputs[: op.carried], inputs[op.carried : first]
        scans = [
            (self._row(operand), axis, size, is_reversed)
            for operand, (axis, size, is_reversed) in zip(scanned, op.scan_inputs, strict=True)
        ]
        outputs = self.outputs[op.carried :]
        parts = op.body.outputs[1 + op.carried :]
        counts = [_size_of_part(part, axis) for part, (axis, _) in zip(parts, op.scan_outputs, strict=True)]
        self._scan_results = [
            TensorShape.of_operand(operand, axis, size)
            for operand, (axis, _), size in zip(outputs, op.scan_outputs, counts, strict=True)
        ]
        self.arguments = (
            None if trip_count is None else self._row(trip_count),
            None if condition is None else self._row(condition),
            list(map(self._row, states)),
            scans,
            [self._row(inputs[position - 1]) for position in self._captures],
            list(map(encode_operand, self.outputs[: op.carried])),
            [
                (encode_operand(operand), axis, size, is_reversed)
                for operand, (axis, is_reversed), size in zip(outputs, op.scan_outputs, counts, strict=True)
            ],
            op.program.is_endless,
        )
        program.add_loop(*self.arguments)

    def _subgraph_at(self, index: int) -> Subgraph:
        return self._subgraph

    def bind(self, executable: Executable, read: OperandReader) -> bool | None:
        first = self._op.carried + len(self._parts)
        inputs = self.inputs[2:]
        shapes = [
            TensorShape("i64", ()),
            *(None if operand is None else TensorShape.of_operand(operand) for operand in inputs[: self._op.carried]),
            *self._parts,
            *(None if operand is None else TensorShape.of_operand(operand) for operand in inputs[first:]),
        ]
        numbers = {position: position for position in range(1 + first)}
        numbers |= {position: 1 + first + number for number, position in enumerate(self._captures)}
        return self._bind(executable, 0, self._subgraph, shapes, numbers)

    def _results(self) -> list[TensorShape]:
        condition = [] if self._subgraph.is_endless else [TensorShape("boolean", ())]
        states = [TensorShape.of_operand(operand) for operand in self.outputs[: self._op.carried]]
        return [*condition, *states, *self._scan_results]


def control_step(number: int, step: Step, tensor_map: TensorMap, program: Any) -> ControlStep | None:
    """Add the If or Loop of a step to ``program`` as the native step of index ``number``; return None for another operator.

    Raises ValueError where the core does not support the operator or its operands.
    """
    op = step.call.nodes[0].op if step.call is not None and len(step.call.nodes) == 1 else None
    if isinstance(op, CompiledIf) and op.programs is not None:
        return IfStep(number, step, tensor_map, op, program)
    if isinstance(op, CompiledLoop) and op.program is not None:
        return LoopStep(number, step, tensor_map, op, program)
    return None


def _is_unwritable(operand: Operand) -> bool:
    return operand.data is not None or operand.tensor.is_dynamic


def _size_of_part(part: Value, axis: int) -> int:
    """Return the size, along the scan axis, of the part of a scan output that one iteration computes."""
    size = None if part.shape is None else part.shape[axis]
    if not isinstance(size, int):
        raise ValueError("scan outputs of parts whose size is known only at run time")
    return size
