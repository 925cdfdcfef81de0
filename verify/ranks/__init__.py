"""Runs on several ranks: what they hold together, and where they do not agree (docs/ranks.md)."""
