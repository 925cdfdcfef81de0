"""Attention references: FP64 streaming, FP64 in parts that are merged, and mpmath."""

from verify.reference.attention.inputs import AttentionInputs, Row
from verify.reference.attention.streaming import AttentionResult, attend

__all__ = ["AttentionInputs", "AttentionResult", "Row", "attend"]
