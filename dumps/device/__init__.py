"""Capture that stays on the device: taps inside captured graphs and compiled models, drained after
each replay, and full tensors through a pinned ring (docs/device-capture.md)."""
