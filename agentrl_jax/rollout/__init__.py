"""Host loops: episodes in, batches out."""
