"""Renderers: terminal, JSON, HTML and plots. They show results and never compute them."""
