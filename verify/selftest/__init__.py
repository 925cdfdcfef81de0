"""The tool on trial: planted faults and innocent variants of a real model, judged blind
(docs/detection.md). Import from the submodules: ``plan``, ``run``, ``result``."""
