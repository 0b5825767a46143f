"""dovetail.change_encoding: quantized weights and activations in another encoding, with the same elements."""

from __future__ import annotations

from dovetail.errors import RuleError, raise_all
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting
from dovetail.ir.suggestions import check_keywords, closest

ENCODINGS = ("qdq", "fakequantize", "matmulnbits", "compressed")


@check_keywords
def change_encoding(model: Model, encoding: str, *, keeps_others: bool = False) -> Model:
    """Return a copy of ``model`` whose quantized weights and activations have the encoding ``encoding``, with the same elements.

    - "qdq": DequantizeLinear of integer or f8 codes, for activations behind QuantizeLinear;
    - "fakequantize": FakeQuantize, for weights of codes in floats;
    - "matmulnbits": MatMulNBits of com.microsoft, for products of f32 with codes of 2, 4 or 8 bits;
    - "compressed": Cast, Subtract, Multiply and Reshape of codes, as OpenVINO keeps compressed weights.

    Activations have the first two encodings, and stay as they are for the others. A change of encoding keeps each element of a
    weight, and the result for each number x of an activation, bit for bit. Where that is impossible the node is refused, or, with
    ``keeps_others``, stays in its encoding. Products whose weights have another layout may sum in another order.

    Raises RuleError [argument.value] for an unknown encoding; UnsupportedError [op.unsayable] with each node that cannot have the
    encoding, and the reason. Sources: ONNX QuantizeLinear, DequantizeLinear; OpenVINO FakeQuantize-1; com.microsoft MatMulNBits.

    >>> with dovetail.Builder() as b:
    ...     w = b.DequantizeLinear(np.ones((16, 2), np.int8), np.float32(0.5))
    ...     y = b.output("y", b.MatMul(b.input("x", "f32", ("n", 16)), w))
    >>> [type(node.op).__name__ for node in dovetail.change_encoding(b.model, "matmulnbits").graph.nodes][-1]
    'MatMulNBits'
    """
    if encoding not in ENCODINGS:
        names = f"{', '.join(ENCODINGS)}, got {encoding!r}{closest(str(encoding), ENCODINGS)}"
        raise RuleError("argument.value", f"encoding must be one of {names}")
    # Deferred for start-up time: the encodings import a part of the operators.
    from dovetail.passes.exact_encodings import encode_graph

    with counting(model.limits):
        new = copy_model(model)
        faults = encode_graph(new.graph, encoding, model.file)
        if not keeps_others:
            raise_all(faults, f"nodes that have no exact {encoding} encoding")
    return new
