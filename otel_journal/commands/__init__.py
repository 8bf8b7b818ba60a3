"""Commands that read a store, one module each: they know the protocol of stores and no backend."""
