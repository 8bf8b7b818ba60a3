"""The process that reads a store and exports: spans, metrics and the feed."""
