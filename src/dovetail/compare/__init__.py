"""Comparison of engines: random inputs, benchmarks, verification."""
