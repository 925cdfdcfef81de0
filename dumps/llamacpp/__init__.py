"""Runs of llama.cpp, recorded through its evaluation callback (docs/llamacpp.md)."""
