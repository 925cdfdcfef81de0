"""Digest, sketch and statistics of the rows of tensors, taken where the tensors are."""
