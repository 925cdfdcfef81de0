"""Causal prefill: its contract, its routes, and the call."""
