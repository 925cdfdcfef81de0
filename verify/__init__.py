"""verify: find where two runs of a model part, why, and whether that is rounding or a defect."""

__version__ = "0.1.0"
