"""The exceptions of the ``openvino`` package."""

__all__ = ["OVError", "OVTypeError", "UserInputError"]


class OVError(Exception):
    """OVError is the base class."""


class UserInputError(OVError):
    """UserInputError reports a wrong input."""


class OVTypeError(OVError, TypeError):
    """OVTypeError reports a wrong type."""
