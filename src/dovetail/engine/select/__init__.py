"""Kernel selection: which native kernel computes a node, and which nodes one fused elementwise kernel takes."""
