"""ONNX Runtime: what a model exported to ONNX computes inside, named as PyTorch names it."""
