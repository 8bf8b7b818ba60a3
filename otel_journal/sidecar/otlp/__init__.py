"""OTLP without the SDK: what spans look like on the wire, and how they are delivered."""
