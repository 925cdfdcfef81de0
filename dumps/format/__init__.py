"""Dump format 1: the types, one writer and one reader (docs/dump-format.md specifies it)."""
