"""Checks and fixtures for pytest (docs/pytest.md); pytest loads :mod:`.plugin` by its entry point."""
