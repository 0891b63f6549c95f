"""Working modules with examples; `envs/code/items.py` takes them apart."""
