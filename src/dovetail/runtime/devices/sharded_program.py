"""Programs of JAX over a mesh of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import named_inputs
from dovetail.ir.symbolic import name_of
from dovetail.ir.types import Tensor
from dovetail.runtime.devices.collectives import Collectives, collectives_in
from dovetail.runtime.devices.jax_program import JaxProgram
from dovetail.runtime.devices.sharding_plan import ShardingPlan, check_spec, override
from dovetail.runtime.devices.sharding_proposal import DATA, ShardingProposal, propose
from dovetail.runtime.devices.trace_steps import TraceSteps
from dovetail.runtime.random_inputs import random_inputs


class ShardedProgram(JaxProgram):
    """ShardedProgram is a Program of JAX that splits inputs and weights over ``mesh``; XLA adds the collectives.

    ``shardings`` maps patterns of tensor names to specs that replace the proposed specs.
    """

    shardings: ShardingPlan

    def __init__(
        self,
        model: Model,
        device: Any = None,
        results: str = "numpy",
        mesh: Mapping[str, int] | None = None,
        shardings: Mapping[str, Any] | None = None,
    ) -> None:
        self._requests = dict(shardings or {})
        self._sizes = _check_mesh(mesh or {})
        self._specs: dict[str, Any] = {}
        self._gathered: Mapping[str, int] = {}
        super().__init__(model, device, results, mesh=mesh, shardings=shardings)

    @property
    def _runtime(self) -> str:
        mesh = ", ".join(f"{name}={size}" for name, size in self._sizes.items())
        return f"{self.library} on {prod(self._sizes.values())} devices ({mesh})"

    def _place_weights(self, weights: Sequence[Any]) -> list[Any]:
        jax = self._jax
        self._mesh = _mesh_of(jax, self._sizes, self.device.platform)
        values = {
            y.name: tuple(y.type.shape)
            for node in self.model.graph.nodes
            for y in node.outputs
            if isinstance(y.type, Tensor) and y.type.shape is not None
        }
        proposal = self._propose(weights)
        self.shardings = override(proposal.plan, self._requests, values)
        self._gathered = proposal.gathered
        self._specs = {row.name: row.spec for row in self.shardings if row.kind == "value"}
        # The trace for the proposal has no sharding constraints, so that the program must be traced again.
        self._jitted = jax.jit(self._trace)
        return [
            jax.device_put(data, self._sharding(self.shardings[value.name]))
            for value, data in zip(self._weight_values, weights, strict=True)
        ]

    def _propose(self, weights: Sequence[Any]) -> ShardingProposal:
        sample = random_inputs(self.model, sizes=batch_sizes(self.model, self._sizes))
        inputs = self._bind(named_inputs(self.model, sample), self._jax.Array)
        traced = self._jax.jit(self._trace).trace(weights, inputs)
        steps = TraceSteps(traced.jaxpr)
        numbers: list[int | None] = []
        rest = iter(steps.inputs[len(weights) :])
        for item in inputs:
            leaves = len(self._jax.tree.leaves(item))
            found = [next(rest) for _ in range(leaves)]
            numbers.append(found[0] if isinstance(item, np.ndarray) else None)
        return propose(self.model.graph, self._weight_values, steps, self._sizes, numbers)

    def _sharding(self, spec: Sequence[Any]) -> Any:
        return self._jax.sharding.NamedSharding(self._mesh, self._jax.sharding.PartitionSpec(*spec))

    def _place_inputs(self, inputs: list[Any]) -> list[Any]:
        return [
            self._place_input(value.name, item) if hasattr(item, "shape") else item
            for value, item in zip(self.model.inputs, inputs, strict=True)
        ]

    def _place_input(self, name: str, item: Any) -> Any:
        spec = check_spec(name, item.shape, self.shardings[name], self._sizes)
        return self._jax.device_put(item, self._sharding(spec))

    def _constrain(self, value: Value, array: Any) -> Any:
        spec = self._specs.get(value.name)
        if spec is None and value.name in self._gathered:
            # Without this constraint XLA may keep the axis split up to the next product, and exchange more data there.
            axes: list[Any] = [self._jax.sharding.PartitionSpec.UNCONSTRAINED] * array.ndim
            axes[self._gathered[value.name]] = None
            spec = tuple(axes)
        if spec is None or not isinstance(array, self._jax.Array):
            return array
        return self._jax.lax.with_sharding_constraint(array, self._sharding(spec))

    def collectives(self, *inputs: Any, **by_name: Any) -> Collectives:
        """Compile for the shapes of ``inputs``, the arguments of a call. Returns the collectives of the compiled program."""
        arrays = self._positional_inputs(inputs, by_name)
        named = named_inputs(self.model, arrays[0] if len(arrays) == 1 and isinstance(arrays[0], Mapping) else arrays)
        bound = self._bind(named, self._jax.Array)
        with self._scope():
            compiled = self._jitted.lower(self._weights, self._place_inputs(bound)).compile()
        return collectives_in(compiled.as_text(), self.model.graph)


def batch_sizes(model: Model, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return sizes, by symbol, for the symbolic leading dimensions of inputs: a multiple of the mesh axis "data"."""
    shapes = [value.type.shape for value in model.inputs if isinstance(value.type, Tensor) and value.type.shape]
    names = [name_of(shape[0]) for shape in shapes if not isinstance(shape[0], int)]
    return {name: 2 * mesh.get(DATA, 1) for name in names if name is not None}


def _check_mesh(mesh: Mapping[str, int]) -> dict[str, int]:
    is_valid = (
        isinstance(mesh, Mapping)
        and mesh
        and all(
            isinstance(name, str) and isinstance(size, int) and not isinstance(size, bool) and size >= 1
            for name, size in mesh.items()
        )
    )
    if not is_valid:
        raise EngineError("argument.value", f"a mesh must be a dict of names to sizes of at least 1, got {mesh!r}")
    return dict(mesh)


def _mesh_of(jax: Any, sizes: Mapping[str, int], platform: str) -> Any:
    devices = jax.devices(platform)
    count = prod(sizes.values())
    if count > len(devices):
        message = f"the mesh needs {count} devices, but JAX has {len(devices)} of the platform {platform}"
        hint = f"; set XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX starts to split the processor"
        raise EngineError("argument.value", message + (hint if platform == "cpu" else ""))
    return jax.sharding.Mesh(np.array(devices[:count]).reshape(tuple(sizes.values())), tuple(sizes))
