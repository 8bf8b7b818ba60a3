"""The read-only HTTP side of the sidecar: metrics, health, the feed as pages and as streams."""
