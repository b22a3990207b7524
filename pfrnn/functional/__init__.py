"""Pure tensor functions: weights, resampling, gates, sequences, losses."""
