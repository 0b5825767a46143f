"""Options and report of :func:`dovetail.quantize`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dovetail.ir.suggestions import check_keywords


@check_keywords
@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """QuantizeOptions holds the options of :func:`quantize` about codes.

    - ``block_size``: the number of codes of a product's weights that share a scale, one of 16, 32, 64, 128, 256; 0 for one scale
      per output channel. The default is 32 for int4, and 0 for int8.
    - ``symmetric``: without zero points; by default int8 is symmetric, and int4 is not.
    - ``encoding``: "matmulnbits" (MatMulNBits of com.microsoft for weights in blocks), "qdq" (DequantizeLinear), or "ir"
      (DequantizeLinear in the layout in which OpenVINO keeps compressed weights); by default "ir" for a model of OpenVINO IR, and
      "matmulnbits" for others. Weights with one scale per channel are DequantizeLinear in each of them.
    - ``rounding``: "nearest", or "gptq": the errors of a product's weights compensate each other on the rows of ``inputs``, where
      that makes its error smaller on rows that were not used for it. The default is "gptq" where ``inputs`` has arrays.
    - ``activations``: with int8, also quantize the inputs of products and convolutions to u8, with one scale and zero point for
      each tensor. The range is that of all elements ("minmax"), of all but 0.01 % of them ("percentile"), or the one with the
      smallest squared error ("mse"). By default the activations stay in f32.
    - ``keep``: names of nodes or of constants whose weights keep their type.
    - ``verify``: run the model and the result on rows. Without it there is neither a prediction nor a measured error.
    """

    block_size: int | None = None
    symmetric: bool | None = None
    encoding: str | None = None
    rounding: str | None = None
    activations: str | None = None
    verify: bool = True
    keep: Collection[str] = ()


@dataclass(slots=True)
class QuantizedNode:
    """QuantizedNode is the row of one weight in the report of :func:`quantize`.

    ``node`` and ``op`` are the first node that reads the weight ``value``. ``bits`` and ``bytes`` are those of the result, with
    scales and zero points. ``block`` is the number of codes with one scale, 0 for one scale per channel or none.
    ``rounding`` is "nearest" or "gptq"; "" for a weight that keeps its type.
    ``activation_bits`` are 8 where the node's input is quantized too. ``predicted``
    and ``measured`` are relative errors of the outputs where only this weight is rounded; None where nothing ran. ``kept`` is the
    reason why the weight keeps its type; "" where it is rounded.
    """

    node: str
    op: str
    value: str
    bits_before: int
    bits: int
    block: int
    rounding: str
    bytes_before: int
    bytes: int
    activation_bits: int = 32
    predicted: float | None = None
    measured: float | None = None
    kept: str = ""


@dataclass(slots=True)
class QuantizeReport:
    """QuantizeReport is the report of :func:`quantize`.

    ``predicted`` and ``measured`` are relative errors of the outputs of the result, the latter on the held-out rows; ``upper`` is
    a confidence bound of the error on as many other rows. They are None where nothing ran. ``drawn`` names the random inputs.
    ``calls`` and ``held_out`` are numbers of calls of the model. ``notes`` are for people.
    """

    to: str
    nodes: list[QuantizedNode]
    budget: float | None = None
    predicted: float | None = None
    measured: float | None = None
    upper: float | None = None
    calls: int = 0
    held_out: int = 0
    drawn: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bytes_before(self) -> int:
        """The bytes of all weights of the table in the model."""
        return sum(node.bytes_before for node in self.nodes)

    @property
    def bytes(self) -> int:
        """The bytes of all weights of the table in the result."""
        return sum(node.bytes for node in self.nodes)
