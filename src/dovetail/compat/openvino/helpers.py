"""Packing of elements with fewer than 8 bits."""

from dovetail.compat.openvino.tensor import pack_data, unpack_data

__all__ = ["pack_data", "unpack_data"]
