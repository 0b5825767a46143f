"""The name of the property of the log level."""

from dovetail.compat.openvino.enumerations import Level, Property

__all__ = [
    "Level",
    "level",
]

level = Property("LOG_LEVEL")
