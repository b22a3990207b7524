"""Run records on disk, and their import into MLflow."""
