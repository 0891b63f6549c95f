"""Locks: a run begins with a GGUF file, by the config of the real model."""

import json
import pathlib

import gguf_test
import jax
import numpy as np
import pytest
from loading import load

from agentrl_jax import assembly, checkpoint, metrics
from agentrl_jax import config as config_lib
from agentrl_jax.models import params

pytest.importorskip('gguf')
pytestmark = pytest.mark.slow  # a minute of compiling
ROOT = pathlib.Path(__file__).parents[2]
CONFIG = str(ROOT / 'configs' / 'smollm2.py')
SETS = {
  'compilation_cache': '',
  'checkpoint.every': '1',
  'eval.tasks': '0',
  'eval.test_tasks': '0',
  'log.tensorboard': 'false',
  'lora.rank': '2',
  'rollout.max_context': '768',  # a byte is a token
  'rollout.max_turn_tokens': '8',
  'rollout.max_turns': '2',
  'rollout.tasks': '1',
  'rollout.group_size': '2',
  'sampler.extend_chunk': '64',
  'sampler.extend_rows': '2',
  'sampler.slots': '2',
  'sft.demonstrations': '4',
  'sft.rows': '1',
  'sft.steps': '1',
  'train.constant_groups': 'keep',
  'train.iterations': '1',
  'train.minibatches': '1',
  'train.row_length': '1536',
}


launch = load(ROOT / 'experiments' / 'launch.py')


def test_fine_tuning_and_rl_train_adapters_on_its_weights(
  tmp_path, monkeypatch
):
  monkeypatch.setenv('AGENTRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('AGENTRL_JAX_DATA', str(tmp_path / 'data'))
  config = gguf_test.CONFIG
  made = jax.tree.map(
    lambda x: np.asarray(x) * 0.5, params.init(config, jax.random.key(0))
  )
  file = gguf_test.write(tmp_path / 'tiny.gguf', config, made)
  sets = {'model.weights': str(file), **SETS}
  flags = [f'--config.{name}={value}' for name, value in sets.items()]
  run = tmp_path / 'run'
  c = config_lib.load(CONFIG, sets)
  launch.check(c)
  work = ['--config=' + CONFIG, f'--workdir={run}', '--display=quiet']
  assert launch.main([*work, *flags]) == 0

  (_, row) = metrics.read(run)
  assert row['updates'] == 1 and row['doctor/checks'] > 10
  assert row['policy/first_ratio_deviation'] < 1e-4
  assert len(metrics.read(run, name='sft')) == 1
  # The tokenizer is the file's, and what is saved are adapters of rank 2.
  assert assembly.language(c).tokenizer.vocab_size == config.vocab_size
  saved = json.loads((run / 'tokenizer' / 'tokenizer.json').read_text())
  assert saved['model']['vocab']['ab'] == 259
  checkpoints = checkpoint.Checkpoints(
    str(run / 'checkpoints'), keep=1, read_only=True
  )
  assert checkpoints.latest == 1
  checkpoints.close()
