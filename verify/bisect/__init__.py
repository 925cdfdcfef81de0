"""From two dumps to the first difference, its origin and a verdict."""
