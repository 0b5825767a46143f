"""Modules of ``onnxruntime.capi`` that programs import for exceptions and classes."""

from dovetail.compat.onnxruntime.capi import _pybind_state, onnxruntime_inference_collection, onnxruntime_pybind11_state

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
