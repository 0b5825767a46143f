"""The operators that run natively: for each, some case whose every step is the core's own, in f32 and in half precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from case_runner import CASES, feeds, model_of
from cases import Case
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

NATIVE = """
    Concat Split Reshape Flatten Squeeze Unsqueeze Transpose Slice Pad Expand Tile Roll Identity Gather GatherElements GatherND
    DepthToSpace SpaceToDepth ShuffleChannels
    Conv ConvTranspose GroupConv MatMul Gemm
    LSTM GRU RNN QuantizeLinear DequantizeLinear FakeQuantize Resize MaxPool AveragePool GlobalAveragePool GlobalMaxPool
    BatchNormalization LayerNormalization InstanceNormalization GroupNormalization RMSNormalization LRN
    MeanVarianceNormalization NormalizeL2 Softmax LogSoftmax Dropout
    Add Subtract Multiply Divide Power Maximum Minimum Sum Mean Mod SquaredDifference
    Abs Negative Sign Sqrt Reciprocal Exp Log Erf Sin Cos Tanh Floor Ceil Round
    Relu LeakyRelu PRelu Elu Selu Celu Sigmoid HardSigmoid HardSwish Swish SwiGLU Mish Gelu Softplus Softsign Clip
    Equal NotEqual Less LessEqual Greater GreaterEqual Where IsNaN IsInf IsFinite Cast
    ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
    TopK ArgMax ArgMin CumSum
""".split()
OF_F32 = dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "FakeQuantize"), "its grid lies by the roundings of its own type")


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", NATIVE)
def test_an_operator_runs_natively(name: str, kind: Any) -> None:
    if name in OF_F32 and kind is not np.float32:
        pytest.skip(OF_F32[name])
    reasons = []
    for _, case in CASES:
        if type(case.op).__name__ == name and any(x is not None and x.dtype == np.float32 for x in case.inputs):
            inputs = tuple(x.astype(kind) if x is not None and x.dtype == np.float32 else x for x in case.inputs)
            reason = _in_python(replace(case, inputs=inputs, constants=tuple(range(1, len(case.inputs)))))
            if not reason:
                return
            reasons.append(reason)
    raise AssertionError(f"every case of {name} has a step in Python: {sorted(set(map(str, reasons)))}")


def _in_python(case: Case) -> list[Any]:
    """Why steps of a case run in Python; empty where all run natively, and there are some."""
    bound, _ = Engine(model_of(case), threads=1).bind(feeds(case))
    found = [(step.kernel, reason) for step, reason in bound.python_steps]
    return found if bound.native_steps else [*found, "nothing runs natively"]
