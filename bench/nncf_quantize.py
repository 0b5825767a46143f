"""Quantize an ONNX file by NNCF; bench/quantize_zoo.py runs this with the Python of an environment that has NNCF.

    PYTHON bench/nncf_quantize.py SOURCE ROWS.npz TARGET static|int4

ROWS.npz has the inputs of call K under K/NAME. `static` quantizes weights and activations to 8 bits by `nncf.quantize`, `int4`
compresses the weights of products in asymmetric blocks of 32 by `nncf.compress_weights`, with its scale estimation on the rows.
"""

from __future__ import annotations

import sys

import numpy as np


def main() -> int:
    import nncf
    import onnx

    source, rows, target, to = sys.argv[1:]
    model = onnx.load(source)
    calls: dict[str, dict[str, np.ndarray]] = {}
    with np.load(rows) as arrays:
        for key in arrays.files:
            number, _, name = key.partition("/")
            calls.setdefault(number, {})[name] = arrays[key]
    data = nncf.Dataset(list(calls.values()))
    if to == "static":
        new = nncf.quantize(model, data, subset_size=len(calls))
    else:
        new = nncf.compress_weights(
            model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=32, all_layers=True, dataset=data,
            scale_estimation=True, subset_size=len(calls),
            advanced_parameters=nncf.AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST),
        )  # fmt: skip
    onnx.save(new, target)
    print(nncf.__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
