"""Replay: the output that a kernel's declared arithmetic must produce, rounding by rounding."""
