"""Dumps of other tools, read as runs of dump format 1 (docs/importers.md).

One file a format, each with what it is called, how its content is recognised and how it is read;
``registry`` lists them, ``writing`` is the only one that writes.
"""
