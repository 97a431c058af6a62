"""What runs in an engine's container: vLLM, transformers, embedders, and the server that the gateway speaks to."""
