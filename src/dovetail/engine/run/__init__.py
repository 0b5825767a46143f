"""Execution of plans: step encoding, executables, steps in Python, output buffers, and the subgraphs of If and Loop."""
