"""Operations of llama.cpp held against FP64 on what llama.cpp itself recorded as their inputs, with the
weights of a GGUF file and the roundings of ggml's CPU backend (docs/llamacpp.md)."""
