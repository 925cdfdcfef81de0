"""Certificates of attention outputs; docs/numerics-attention.md explains every number."""

from verify.reference.certificates.attention.certify import certify_attention, certify_rows
from verify.reference.certificates.attention.pair import certify_attention_pair

__all__ = ["certify_attention", "certify_attention_pair", "certify_rows"]
