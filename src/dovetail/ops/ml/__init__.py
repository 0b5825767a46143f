"""Operators of the domain ai.onnx.ml."""

from dovetail.ops.ml import (
    class_labels,
    feature_encoding,
    label_encoder,
    linear_models,
    maps,
    post_transform,
    svm,
    tree_ensemble,
    tree_ensemble_classifier,
)

__all__ = [
    "class_labels",
    "feature_encoding",
    "label_encoder",
    "linear_models",
    "maps",
    "post_transform",
    "svm",
    "tree_ensemble",
    "tree_ensemble_classifier",
]
