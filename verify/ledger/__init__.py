"""An append-only record of evidence: what was checked, with which result, on which artifacts.

docs/ledger.md specifies the files. Import from the submodules: ``entry``, ``store``, ``check``,
``merge``.
"""
