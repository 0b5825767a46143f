"""Conversions between element types of OpenVINO and of numpy."""

import numpy as np

from dovetail.compat.openvino.element_type import Type, TypeLike, to_type

__all__ = ["get_dtype", "get_element_type"]


def get_dtype(openvino_type: Type) -> np.dtype[np.generic]:
    """Return the numpy type of a Type."""
    return openvino_type.to_dtype()


def get_element_type(data_type: TypeLike) -> Type:
    """Return the Type of a numpy type."""
    return to_type(data_type)
