"""Factors of kernel times, written by ``python bench/cost.py --fit times`` on AMD EPYC (family 25, model 1), avx2, one thread."""

FACTORS: dict[str, tuple[float, float, float, float]] = {
    "": (3.97e-09, 0.7766, 1.777, 1.211),  # 1353 steps
    "conv": (0, 0, 0.1622, 1.41),  # 822 steps
    "conv in place": (0, 0.5491, 1.602, 1.019),  # 419 steps
    "conv pixels": (0, 1.677, 3.262, 0.9277),  # 122 steps
    "conv rows": (7.844e-05, 2.658, 2.658, 0.9479),  # 20 steps
    "conv winograd": (0, 0, 0, 1.876),  # 261 steps
    "copy": (0, 0.7865, 1.789, 0),  # 55 steps
    "copy batched transpose": (0, 0.5761, 1.714, 0),  # 32 steps
    "copy rows": (3.335e-05, 0, 1.753, 0),  # 16 steps
    "copy tiled transpose": (0, 2.321, 2.87, 0),  # 6 steps
    "elementwise": (0, 0.43, 0.8551, 8.668),  # 43 steps
    "gather": (6.917e-06, 0.9089, 1.373, 0),  # 15 steps
    "layer_norm": (4.653e-06, 0.9112, 1.615, 0),  # 37 steps
    "layer_norm rows": (4.653e-06, 0.9112, 1.615, 0),  # 37 steps
    "lrn": (0, 2.833, 2.833, 0),  # 12 steps
    "lrn channels": (0, 2.833, 2.833, 0),  # 12 steps
    "matmul": (3.522e-05, 0.9795, 1.768, 1.038),  # 157 steps
    "matmul constant": (0, 1.694, 1.754, 1.038),  # 125 steps
    "matmul packed": (0, 1.803, 4.202, 1.185),  # 32 steps
    "pool": (0, 1.29, 2.29, 1.365),  # 108 steps
    "pool average channels": (0, 1.497, 2.728, 0),  # 34 steps
    "pool max channels": (0, 1.05, 2.113, 2.901),  # 74 steps
    "quantized_conv": (0, 4.656, 5.406, 1.113),  # 54 steps
    "quantized_conv im2col": (0, 12.12, 9.878, 0.9364),  # 4 steps
    "quantized_conv in depth": (0, 4.439, 5.13, 1.09),  # 35 steps
    "quantized_conv rows": (0, 93.06, 32.39, 0.5583),  # 15 steps
    "recurrent": (0.002353, 0, 0, 1.06),  # 4 steps
    "recurrent lstm": (0.002353, 0, 0, 1.06),  # 4 steps
    "reduce": (0, 1.552, 2.544, 0),  # 5 steps
    "reduce mean": (0, 1.552, 2.544, 0),  # 5 steps
    "resize": (1.745e-05, 5.337, 5.337, 0),  # 4 steps
    "resize channels": (1.745e-05, 5.337, 5.337, 0),  # 4 steps
    "softmax": (4.107e-06, 2.87, 2.908, 0),  # 32 steps
    "softmax rows": (4.107e-06, 2.87, 2.908, 0),  # 32 steps
}
"""Maps a kernel to its overhead in seconds, and to its factors for cached bytes, streamed bytes and operations."""
