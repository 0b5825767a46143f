"""Neural network layers: convolution, pooling, normalization, Resize."""
