"""Attention operators."""

from dovetail.ops.attention import (
    attention,
    group_query_attention,
    heads,
    linear_attention,
    rotary_embedding,
)

__all__ = [
    "attention",
    "group_query_attention",
    "heads",
    "linear_attention",
    "rotary_embedding",
]
