"""Chat completions, as OpenAI's own service and every server that is compatible with it speak them."""
