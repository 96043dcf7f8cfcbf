"""The replica's metrics: their catalogue, and percentiles from histograms."""
