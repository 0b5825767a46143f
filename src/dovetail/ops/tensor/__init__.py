"""Shape, layout and indexing of tensors: Concat, Split, Reshape, Transpose, Gather, Scatter."""
