"""Kernels over a paged E4M3 cache: the bridge to FP16 and the decode step."""
