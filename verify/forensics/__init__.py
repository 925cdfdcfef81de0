"""What a difference is: small detectors on pairs of rows, each a file of its own."""
