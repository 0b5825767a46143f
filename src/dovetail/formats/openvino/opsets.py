"""Operator versions in the opsets of OpenVINO, and the version that an IR layer's ``version`` attribute selects.

The version of an operator is the number of the opset that introduced its present definition: Reshape in ``opset8`` is Reshape-1.
Source: OpenVINO's ``opsets/opset<N>_tbl.hpp``, 1 to 17. Operators have their names in IR (Const, ReLU, PReLU, SoftMax).
"""

from __future__ import annotations

import re
from bisect import bisect_right

LATEST = 17

# Versions -> the operators with exactly these versions. This is a table because it lists all operators of OpenVINO, also
# those that no operator of dovetail maps to.
_KINDS: dict[tuple[int, ...], str] = {
    (1,): (
        "Abs Acos Add Asin Atan BinaryConvolution CTCGreedyDecoder Ceiling Clamp Concat Const Convert ConvertLike "
        "Convolution ConvolutionBackpropData Cos Cosh DeformablePSROIPooling DepthToSpace Divide Elu Equal Erf Exp "
        "FakeQuantize Floor FloorMod GRN GatherTree Greater GreaterEqual GroupConvolution GroupConvolutionBackpropData "
        "HardSigmoid LRN Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor MatMul Maximum Minimum Mod "
        "Multiply Negative NormalizeL2 NotEqual PReLU PSROIPooling Parameter Power PriorBoxClustered RNNCell ReLU "
        "ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum RegionYolo Reshape Result "
        "Reverse ReverseSequence Select Selu ShuffleChannels Sigmoid Sign Sin Sinh SpaceToDepth Split Sqrt "
        "SquaredDifference StridedSlice Subtract Tan Tanh TensorIterator Tile Transpose Unsqueeze VariadicSplit Xor"
    ),
    (1, 3): "Broadcast ShapeOf",
    (1, 3, 4, 5, 9): "NonMaxSuppression",
    (1, 3, 11): "TopK",
    (1, 4): "LSTMCell Proposal Range",
    (1, 4, 11): "Interpolate",
    (1, 5): "BatchNormInference",
    (1, 7, 8): "Gather",
    (1, 8): "DeformableConvolution DetectionOutput PriorBox SoftMax",
    (1, 8, 14): "MaxPool",
    (1, 12): "Pad",
    (1, 14, 16): "AvgPool",
    (1, 15): "Squeeze",
    (1, 16): "OneHot",
    (2,): "BatchToSpace ROIPooling ReorgYolo SpaceToBatch",
    (2, 6): "MVN",
    (2, 7): "Gelu",
    (3,): (
        "Bucketize CumSum EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingSegmentsSum ExtractImagePatches GRUCell "
        "NonZero ScatterUpdate"
    ),
    (3, 6): "Assign ReadValue",
    (3, 9): "ROIAlign",
    (3, 12): "ScatterElementsUpdate",
    (4,): "Acosh Asinh Atanh CTCLoss HSwish Mish ReduceL1 ReduceL2 SoftPlus Swish",
    (4, 15): "ScatterNDUpdate",
    (5,): "GRUSequence HSigmoid LSTMSequence LogSoftmax Loop RNNSequence Round",
    (5, 8): "GatherND",
    (6,): (
        "CTCGreedyDecoderSeqLen ExperimentalDetectronDetectionOutput ExperimentalDetectronGenerateProposalsSingleImage "
        "ExperimentalDetectronPriorGridGenerator ExperimentalDetectronROIFeatureExtractor ExperimentalDetectronTopKROIs "
        "GatherElements"
    ),
    (7,): "DFT Einsum IDFT Roll",
    (8,): "AdaptiveAvgPool AdaptiveMaxPool I420toBGR I420toRGB If MatrixNms NV12toBGR NV12toRGB RandomUniform Slice",
    (8, 9): "MulticlassNms",
    (9,): "Eye GenerateProposals GridSample IRDFT RDFT SoftSign",
    (10,): "IsFinite IsInf IsNaN Unique",
    (12,): "GroupNormalization",
    (13,): "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor FakeConvert Multinomial NMSRotated ScaledDotProductAttention",
    (14,): "ConvertPromoteTypes Inverse",
    (15,): (
        "BitwiseLeftShift BitwiseRightShift Col2Im EmbeddingBagOffsets EmbeddingBagPacked ROIAlignRotated STFT "
        "SearchSorted SliceScatter StringTensorPack StringTensorUnpack"
    ),
    (16,): "ISTFT Identity SegmentMax SparseFillEmptyRows",
    (17,): "BGRtoNV12 ErfInv GroupedMatMul RGBtoNV12",
}
VERSIONS: dict[str, tuple[int, ...]] = {kind: versions for versions, kinds in _KINDS.items() for kind in kinds.split()}
_KIND_BY_LOWER = {kind.lower(): kind for kind in VERSIONS}

# Operators of the domains "experimental" and "extension" that OpenVINO's XmlDeserializer looks up in opset6.
_ADOPTED = frozenset(
    "ExperimentalDetectronDetectionOutput ExperimentalDetectronGenerateProposalsSingleImage "
    "ExperimentalDetectronPriorGridGenerator ExperimentalDetectronROIFeatureExtractor ExperimentalDetectronTopKROIs "
    "GRUCell RNNCell Proposal".split()
)
# Operators of opset1 that OpenVINO's XmlDeserializer looks up in opset2.
_LATE = frozenset(("MVN", "ROIPooling", "ReorgYolo"))
_OPSET = re.compile(r"opset([1-9][0-9]{0,3})")


def resolve(kind: str, version: str) -> tuple[str, int, str]:
    """Resolve a layer's ``type`` and ``version`` to the kind (in the letter case of IR), version and domain of the operator.

    For ``version`` "opset<N>" the version is the newest of the operator in opset N, or N if the operator or opset is unknown. Any
    other ``version`` is a domain, whose operators have version 1.
    """
    if version in ("experimental", "extension") and kind in _ADOPTED:
        version = "opset6"
    opset = _OPSET.fullmatch(version)
    if opset is None:
        return kind, 1, version
    number = int(opset[1])
    kind = _KIND_BY_LOWER.get(kind.lower(), kind)
    if number == 1 and kind in _LATE:
        number = 2
    versions = VERSIONS.get(kind, ())
    index = bisect_right(versions, number)
    return kind, versions[index - 1] if index and number <= LATEST else number, ""


def format_version(version: int, domain: str) -> str:
    """Return the ``version`` attribute of a layer, the inverse of :func:`resolve`."""
    return domain or f"opset{version}"
