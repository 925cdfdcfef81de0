"""The complete-model gate: many prompts under two configurations (docs/suite.md)."""
