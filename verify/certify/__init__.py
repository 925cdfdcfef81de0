"""Certificates of recorded tensors: from a name like ``runs/a::model.layers.0.mlp.act_fn.out@0`` to
a verdict of ``verify.reference.certificates``.

The operation and its inputs come from what the dump recorded, weights from a file that is checked
against the digests in the manifest.
"""
