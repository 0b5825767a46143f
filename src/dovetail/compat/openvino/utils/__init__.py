"""Helpers of the ``openvino`` package."""
