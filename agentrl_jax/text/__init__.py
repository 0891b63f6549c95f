"""Text and tokens: tokenizer, chat styles, templates, tool calls. No jax."""
