"""Kernel selection: the native kernel of each operator, and fusion of operators into one kernel."""
