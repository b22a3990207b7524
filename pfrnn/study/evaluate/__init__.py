"""Metrics, selection, statistics and diagnostics."""
