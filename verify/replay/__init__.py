"""Replay: run recorded steps again with recorded inputs, and split a difference into its parts."""
