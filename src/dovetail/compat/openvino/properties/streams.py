"""The name of the property of the number of streams."""

from dovetail.compat.openvino.enumerations import Num, Property

__all__ = [
    "Num",
    "num",
]

num = Property("NUM_STREAMS")
