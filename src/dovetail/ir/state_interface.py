"""Removal of states after the inputs or outputs of a model have changed."""

from __future__ import annotations

from dovetail.errors import Diagnostic
from dovetail.ir.graph import Model


def drop_incomplete_states(model: Model) -> list[Diagnostic]:
    """Remove the states of ``model`` whose input or outputs are no longer in its graph; return a warning for each state."""
    inputs = {value.name for value in model.inputs}
    outputs = {value.name for value in model.outputs}
    warnings = []
    complete = []
    for state in model.states:
        missing = [name for name in (state.input,) if name not in inputs]
        missing += [name for name in state.outputs if name not in outputs]
        if not missing:
            complete.append(state)
            continue
        warnings.append(
            Diagnostic(
                "state.incomplete",
                f"the state {state.variable!r} is dropped, because the model no longer has {', '.join(map(repr, missing))}",
                file=model.file,
                severity="warning",
            )
        )
    model.states = complete
    return warnings
