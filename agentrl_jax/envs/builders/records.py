"""How do tasks and demonstrations become TFDS datasets (ArrayRecord)?

TensorFlow is not needed for any of it. Records keep the order in which they
were generated: position i of a split is record i, on every machine.
"""

import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

Records = Callable[[], Iterable[Mapping[str, Any]]]


class _Ordered(tfds.core.GeneratorBasedBuilder):
  """Writes what its `splits` generate; subclasses say which fields."""

  VERSION = tfds.core.Version('1.0.0')
  pkg_dir_path = None
  about = ''
  fields: Mapping[str, Any] = {}

  def __init__(self, *, splits: Mapping[str, Records], **kwargs: Any):
    self._records = dict(splits)
    super().__init__(**kwargs)

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description=self.about,
      features=tfds.features.FeaturesDict(dict(self.fields)),
      disable_shuffling=True,
    )

  # Two lines that TFDS would print; a redirected stdout would swallow those of
  # other threads.
  def _log_download_bytes(self):
    pass

  def _log_download_done(self):
    pass

  def _split_generators(self, manager):
    del manager
    return {
      split: self._generate_examples(records)
      for split, records in self._records.items()
    }

  def _generate_examples(self, records: Records):
    yield from enumerate(records())


class TaskPanels(_Ordered):
  """Fixed panels of tasks; `data` is JSON."""

  about = 'Tasks of an environment of agentrl_jax.'
  fields = {'index': np.int64, 'data': tfds.features.Text()}


class Demonstrations(_Ordered):
  """Scripted episodes with mistakes; `data` and `messages` are JSON."""

  about = 'Scripted episodes of an environment of agentrl_jax.'
  fields = {
    'index': np.int64,
    'data': tfds.features.Text(),
    'messages': tfds.features.Text(),
    'success': np.int64,
  }


def write(
  builder_class: type[_Ordered],
  splits: Mapping[str, Records],
  directory: pathlib.Path,
) -> pathlib.Path:
  """Generates a dataset quietly; returns the folder that holds it."""
  builder = builder_class(
    splits=splits, data_dir=directory, file_format='array_record'
  )
  tfds.disable_progress_bar()
  builder.download_and_prepare()
  return pathlib.Path(builder.data_dir)


def open_source(directory: pathlib.Path, split: str):
  """Opens a split for random access."""
  return tfds.builder_from_directory(directory).as_data_source(split)
