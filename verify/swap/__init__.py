"""Swap: exchange tensors between two runs until the output moves across, and prove each exchange."""
