"""The native engine, a package for each stage: `rewrite` the graph, `select` kernels, assign `memory`, `run`.

`planner` makes a `plan` of a rewritten graph, `plan_verifier` proves it, `parametric_plan` extends it to a range of sizes, and
`engine` is the interface that a program calls.
"""
