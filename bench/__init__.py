"""Benchmarks that are run by hand; their results are committed beside them."""
