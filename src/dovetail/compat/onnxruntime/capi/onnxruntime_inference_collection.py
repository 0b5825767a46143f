"""The classes that programs take from ``onnxruntime.capi.onnxruntime_inference_collection``."""

from dovetail.compat.onnxruntime.binding import IOBinding
from dovetail.compat.onnxruntime.session import InferenceSession
from dovetail.compat.onnxruntime.values import OrtDevice, OrtValue

Session = InferenceSession

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session"]
