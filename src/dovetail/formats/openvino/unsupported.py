"""Why OpenVINO cannot say operators on lists, maps, optional values and texts."""

from __future__ import annotations

from dovetail.formats.openvino.dialect import OPENVINO

_LISTS = "OpenVINO has no lists, and what is in this one is known only at run time"
_OPTIONAL = "OpenVINO has no value that may be nothing, and whether this one is there is known only at run time"
_TEXTS = "OpenVINO has no operator that computes with texts"

OPENVINO.unsupported_reasons.update(
    dict.fromkeys(
        (
            "ConcatFromSequence",
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SplitToSequence",
        ),
        _LISTS,
    )
)
OPENVINO.unsupported_reasons.update(dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), _OPTIONAL))
OPENVINO.unsupported_reasons.update(
    dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "Tokenizer"), _TEXTS)
)
OPENVINO.unsupported_reasons["TfIdfVectorizer"] = "OpenVINO has no operator that counts n-grams"
OPENVINO.unsupported_reasons["ZipMap"] = (
    "OpenVINO has no maps: export the model without ZipMap, whose input is the same numbers as a tensor"
)
OPENVINO.unsupported_reasons.update(dict.fromkeys(("CastMap", "DictVectorizer"), "OpenVINO has no maps"))
OPENVINO.unsupported_reasons["_PairwiseCoupling"] = "OpenVINO has no operator that couples the probabilities of pairs of classes"
