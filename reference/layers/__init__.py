"""FP64 references for the layers around attention, and what rounding can do to each.

Every layer comes twice. ``rms_norm(...)`` is the value: FP64, with the roundings of a named
convention where ``store`` names a format. ``rms_norm_enclosure(...)`` adds what the undeclared
part of the arithmetic can have changed (enclosure.py). Inputs are the rounded tensors that the
kernel read; computing the reference from anything else tests the inputs and not the layer.
"""
