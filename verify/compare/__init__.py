"""Comparing two dumps row by row, in bounded memory."""
