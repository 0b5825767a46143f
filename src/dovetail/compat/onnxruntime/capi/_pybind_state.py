"""The names of ``onnxruntime.capi._pybind_state``, which are those of ``onnxruntime_pybind11_state``."""

from dovetail.compat.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
