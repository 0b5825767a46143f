"""Memory: which tensors alias which buffers, the layout of each, and the offsets of buffers in the arena."""
