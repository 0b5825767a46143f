"""Factors of kernel times, written by ``python bench/cost.py --fit times`` on AMD EPYC (family 25, model 1), avx2, one thread."""

FACTORS: dict[str, tuple[float, float, float, float, float]] = {
    "": (3.237e-07, 0.4815, 0.7396, 1.23, 31.73),  # 3479 steps
    "argminmax": (3.283e-07, 3.425, 2.348, 0, 0),  # 24 steps
    "argminmax f32": (3.283e-07, 3.425, 2.348, 0, 0),  # 24 steps
    "conv": (6.097e-07, 0.6581, 0.9916, 1.232, 1.232),  # 1122 steps
    "conv folded rows": (1.795e-06, 6.064, 0, 0, 0),  # 4 steps
    "conv in place": (4.978e-07, 0.6105, 1.033, 1.099, 1.099),  # 563 steps
    "conv pixels": (4.316e-07, 2.61, 2.24, 0.9297, 0.9297),  # 126 steps
    "conv rows": (1.297e-06, 4.868, 2.593, 1.084, 1.084),  # 64 steps
    "conv transpose, 4 conv in place": (6.187e-06, 0.4376, 1.297, 1.37, 1.37),  # 40 steps
    "conv winograd": (1.096e-06, 4.607, 5.12, 1.223, 1.223),  # 325 steps
    "copy": (1.709e-07, 0.5411, 0.79, 0, 0),  # 631 steps
    "copy batched transpose": (1.548e-07, 0.4075, 0.892, 0, 0),  # 78 steps
    "copy contiguous": (2.157e-07, 0.317, 0.4535, 0, 0),  # 27 steps
    "copy rows": (2.289e-07, 0.6522, 0.5607, 0, 0),  # 72 steps
    "copy streaming transpose": (0, 2.45, 2.45, 0, 0),  # 18 steps
    "copy tiled transpose": (2.01e-07, 0.6363, 1.027, 0, 0),  # 436 steps
    "dynamic_quantize": (2.395e-07, 0, 0, 91.33, 91.33),  # 52 steps
    "elementwise": (3.188e-07, 0, 0.1224, 16.19, 49.45),  # 601 steps
    "fill": (1.692e-07, 0.5615, 0.5403, 0, 0),  # 10 steps
    "gather": (3.953e-07, 0.9286, 0.4709, 0, 0),  # 27 steps
    "gather_elements": (3.361e-07, 2.52, 3.339, 0, 0),  # 12 steps
    "layer_norm": (3.749e-07, 0.04941, 0.4662, 29.04, 29.04),  # 49 steps
    "layer_norm rows": (3.749e-07, 0.04941, 0.4662, 29.04, 29.04),  # 49 steps
    "log_softmax": (3.324e-07, 5.138, 2.277, 2.361, 2.361),  # 14 steps
    "log_softmax rows": (3.324e-07, 5.138, 2.277, 2.361, 2.361),  # 14 steps
    "lrn": (4.645e-05, 2.097, 2.097, 0, 0),  # 12 steps
    "lrn channels": (4.645e-05, 2.097, 2.097, 0, 0),  # 12 steps
    "matmul": (4.094e-07, 0.3756, 0.895, 1.031, 77.15),  # 329 steps
    "matmul compressed": (2.927e-07, 0.9403, 1.016, 1.065, 1.065),  # 16 steps
    "matmul constant": (4.81e-07, 0.3036, 0.8403, 0.9806, 103.5),  # 225 steps
    "matmul in place": (2.508e-07, 0.5047, 1.022, 1.77, 1.77),  # 36 steps
    "matmul packed": (0, 0.8162, 3.033, 1.111, 16.49),  # 52 steps
    "pool": (5.184e-07, 0.3259, 1.062, 6.027, 6.027),  # 128 steps
    "pool average channels": (7.511e-07, 0.09595, 0.7733, 6.728, 6.728),  # 44 steps
    "pool max channels": (3.188e-07, 1.038, 1.326, 4.335, 4.335),  # 84 steps
    "quantized_conv": (5.655e-07, 0.3548, 0.7998, 1.067, 1.067),  # 98 steps
    "quantized_conv im2col": (0, 0, 6.035, 0.9468, 0.9468),  # 4 steps
    "quantized_conv in depth": (3.12e-07, 0.3774, 0.8477, 1.063, 1.063),  # 69 steps
    "quantized_conv rows": (4.189e-07, 11.9, 25.7, 0.9006, 0.9006),  # 25 steps
    "recurrent": (1.941e-06, 0.1343, 0.4202, 1.813, 1.813),  # 116 steps
    "recurrent gru": (1.653e-06, 0.1798, 0.4075, 1.931, 1.931),  # 28 steps
    "recurrent lstm": (2.804e-06, 0.2776, 0.3473, 1.75, 1.75),  # 32 steps
    "recurrent lstm i8": (4.791e-06, 0, 0.7924, 1.685, 1.685),  # 28 steps
    "recurrent tanh": (1.685e-06, 0, 0.4487, 1.838, 1.838),  # 28 steps
    "reduce": (3.887e-07, 0.6358, 0.6959, 0, 0),  # 159 steps
    "reduce l2": (3.954e-07, 0.5716, 0.6576, 0, 0),  # 24 steps
    "reduce max": (4.322e-07, 0.9399, 0.9202, 0, 0),  # 24 steps
    "reduce mean": (3.734e-07, 0.3394, 0.4453, 3.418, 3.418),  # 39 steps
    "reduce min": (3.726e-07, 1.225, 0.985, 0, 0),  # 24 steps
    "reduce prod": (3.377e-07, 4.589, 5.206, 0, 0),  # 24 steps
    "reduce sum": (3.91e-07, 0.1502, 0.2388, 6.271, 6.271),  # 24 steps
    "resize": (2.771e-06, 0, 1.691, 20.26, 20.26),  # 24 steps
    "resize channels": (2.771e-06, 0, 1.691, 20.26, 20.26),  # 24 steps
    "softmax": (4.223e-07, 0.8103, 0, 81.23, 81.23),  # 44 steps
    "softmax rows": (4.223e-07, 0.8103, 0, 81.23, 81.23),  # 44 steps
    "top_k": (2.081e-07, 24.32, 3.717, 0, 0),  # 12 steps
    "top_k f32": (2.081e-07, 24.32, 3.717, 0, 0),  # 12 steps
    "trilu": (3.452e-07, 2.177, 0, 29.59, 29.59),  # 12 steps
}
"""Maps a kernel to its overhead in seconds, and to its factors for cached bytes, streamed bytes, operations and functions."""

RUN = (7.127e-06, 8.511e-08, 0, 1.259e-13)  # 627 runs
"""The seconds of a run beside its steps: of each run, of an input or output, of a step, of a byte of an output."""
