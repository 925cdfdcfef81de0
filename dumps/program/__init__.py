"""Recording programs whose code stays as it is: settings, waiting for the model, running commands.

``verify.dumps.auto`` switches it on; importing this package does nothing.
"""
