"""Two passes: digests of everything, then full tensors around the first split (docs/recapture.md)."""
