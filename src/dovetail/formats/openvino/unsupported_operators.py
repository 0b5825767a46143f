"""The reasons why OpenVINO has no equivalent of operators on sequences, maps, optional values and strings."""

from __future__ import annotations

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.operator_index import MODULES

_SEQUENCES = "OpenVINO has no sequences, and the elements of this sequence are known only at run time"
_OPTIONAL = "OpenVINO has no optional values, and this optional value is present or absent only at run time"
_STRINGS = "OpenVINO has no operator that computes with strings"

_BY_MODULE = {
    "dovetail.ops.sequence.sequence": _SEQUENCES,
    "dovetail.ops.sequence.optional": _OPTIONAL,
    "dovetail.ops.text.strings": _STRINGS,
    "dovetail.ops.text.tokenizer": _STRINGS,
}

OPENVINO.unsupported_reasons.update({name: _BY_MODULE[module] for name, module in MODULES.items() if module in _BY_MODULE})
OPENVINO.unsupported_reasons["TfIdfVectorizer"] = "OpenVINO has no operator that counts n-grams"
OPENVINO.unsupported_reasons["ZipMap"] = (
    "OpenVINO has no maps: export the model without ZipMap, whose input tensor has the same numbers"
)
OPENVINO.unsupported_reasons.update(dict.fromkeys(("CastMap", "DictVectorizer"), "OpenVINO has no maps"))
OPENVINO.unsupported_reasons["_PairwiseCoupling"] = "OpenVINO has no operator that couples the probabilities of pairs of classes"
