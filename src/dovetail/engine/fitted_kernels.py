"""Factors of kernel times, written by ``python bench/cost.py --fit`` on AMD EPYC (family 25, model 1), avx2, with one thread."""

FACTORS: dict[str, tuple[float, float, float, float]] = {
    "": (0, 0, 1.782, 2.345),  # 1353 steps
    "conv": (0, 0, 0, 2.158),  # 822 steps
    "conv in place": (0, 0, 0.2944, 1.515),  # 419 steps
    "conv pixels": (0, 2.649, 3.764, 0.8876),  # 122 steps
    "conv rows": (0, 5.375, 5.375, 1.352),  # 20 steps
    "conv winograd": (0, 0, 0, 3.723),  # 261 steps
    "copy": (2.092e-06, 0.681, 1.018, 0),  # 55 steps
    "copy batched transpose": (0, 0.5732, 0.8997, 0),  # 32 steps
    "copy rows": (0, 2.025, 2.081, 0),  # 16 steps
    "copy tiled transpose": (0, 2.364, 2.364, 0),  # 6 steps
    "elementwise": (2.177e-06, 0.5102, 0.9575, 3.957),  # 43 steps
    "gather": (7.747e-06, 1.184, 1.168, 0),  # 15 steps
    "layer_norm": (2.481e-05, 0, 1.384, 0),  # 37 steps
    "layer_norm rows": (2.481e-05, 0, 1.384, 0),  # 37 steps
    "lrn": (0, 4.239, 4.239, 0),  # 12 steps
    "lrn channels": (0, 4.239, 4.239, 0),  # 12 steps
    "matmul": (0, 0, 1.793, 3.642),  # 157 steps
    "matmul constant": (0, 0, 1.801, 3.66),  # 125 steps
    "matmul packed": (0, 3.436, 7.935, 1.017),  # 32 steps
    "pool": (0, 1.704, 2.709, 0.9485),  # 108 steps
    "pool average channels": (0, 1.456, 2.459, 2.007),  # 34 steps
    "pool max channels": (0, 1.83, 2.749, 0.6028),  # 74 steps
    "quantized_conv": (0, 0, 6.232, 2.237),  # 54 steps
    "quantized_conv im2col": (0.003571, 196.9, 98.56, 0),  # 4 steps
    "quantized_conv in depth": (0, 0, 5.597, 1.645),  # 35 steps
    "quantized_conv rows": (0, 187.3, 100.4, 1.69),  # 15 steps
    "recurrent": (0.004811, 61.08, 61.08, 0),  # 4 steps
    "recurrent lstm": (0.004811, 61.08, 61.08, 0),  # 4 steps
    "reduce": (4.408e-06, 0, 1.782, 19.59),  # 5 steps
    "reduce mean": (4.408e-06, 0, 1.782, 19.59),  # 5 steps
    "resize": (0, 0, 0, 219.8),  # 4 steps
    "resize channels": (0, 0, 0, 219.8),  # 4 steps
    "softmax": (4.912e-06, 2.752, 2.912, 0),  # 32 steps
    "softmax rows": (4.912e-06, 2.752, 2.912, 0),  # 32 steps
}
"""Maps a kernel to its overhead in seconds, and to its factors for cached bytes, streamed bytes and operations."""
