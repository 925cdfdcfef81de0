"""Hugging Face models: loading from local files, a generation loop, caches and interceptors."""
