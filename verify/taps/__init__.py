"""Tap maps: which tap of one implementation is which of another, and by what transformation
(docs/taps.md)."""
