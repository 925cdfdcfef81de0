"""Recording runs: the dump format, capture of modules, and the Hugging Face driver."""
