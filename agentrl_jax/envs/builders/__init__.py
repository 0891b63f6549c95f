"""TFDS builders of tasks and demonstrations. Imported where they are used."""
