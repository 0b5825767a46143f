"""Elementwise operators as instructions of one chain."""

from __future__ import annotations

from typing import Any


def refusal(op: Any, dtypes: Any, out: Any) -> str:
    """Why there is no instruction for an operator on these types; empty where there is one."""
    del op, dtypes, out
    return "no native kernel"
