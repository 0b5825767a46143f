"""The native engine has one package per stage: `rewrite` (graph), `select` (kernels), `memory` (buffers), `run` (execution).

`planner` makes a `plan` of a rewritten graph, `plan_verifier` verifies the plan, `parametric_plan` generalizes plans to ranges of
sizes, and `engine` is the interface that a program calls.
"""
