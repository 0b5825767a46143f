"""The native engine, a package for each stage: `rewrite` the graph, `select` kernels, assign `memory`, `run`.

`planner` makes a `plan` of a prepared graph, `plan_verifier` checks it, `parametric_plan` makes it hold for a range of sizes, and
`engine` is what a program calls.
"""
