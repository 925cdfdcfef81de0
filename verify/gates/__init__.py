"""Checks that a change has to pass, their results on record, and waivers that hide nothing.

docs/gates.md specifies ``gates.toml``. A further kind of gate is one class in ``config`` and one
reader in ``readers.READERS``; ``run.run_gates`` and ``status.status`` know nothing of kinds.
"""
