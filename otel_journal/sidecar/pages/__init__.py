"""The pages of the sidecar for people."""
