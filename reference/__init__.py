"""Truth: what the arithmetic of an inference kernel should have produced, exactly or in FP64.

A reference shares no code, precision or order with what it checks. Modules are imported one by
one, so a caller pays for what it uses.
"""
