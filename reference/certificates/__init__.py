"""Certificates: is a deviation from the exact answer explained by the declared rounding?

Every certificate, of whatever operation, is a ``Certificate`` of ``result``; limits on test
statistics come from ``thresholds``. Modules are imported one by one.
"""
