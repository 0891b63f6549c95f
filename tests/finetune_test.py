"""Fine-tuned weights are kept by content, and a stop changes none of them."""

import dataclasses
import os
import pathlib
import types as python_types

import jax
import numpy as np
import pytest

from agentrl_jax import (
  adapters,
  assembly,
  checkpoint,
  data,
  display,
  distributed,
  finetune,
  metrics,
)
from agentrl_jax import config as config_lib
from agentrl_jax.learner import step
from agentrl_jax.models import lora
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import loop

ROOT = pathlib.Path(__file__).parents[1]


def load_config(**sets):
  path = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
  fields = {
    'sft.steps': '20',
    'checkpoint.sft_every': '8',
    'train.row_length': '256',
  }
  return config_lib.load(str(path), {**fields, **sets})


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
  """Language, model, mesh and first weights; one data set for all."""
  patch = pytest.MonkeyPatch()
  patch.setenv('AGENTRL_JAX_DATA', str(tmp_path_factory.mktemp('data')))
  config = load_config()
  language = assembly.language(config)
  model = assembly.model_config(config, language.tokenizer.vocab_size)
  params = params_lib.init(model, jax.random.key(0))
  yield python_types.SimpleNamespace(
    language=language, model=model, mesh=assembly.mesh(config), params=params
  )
  patch.undo()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv('AGENTRL_JAX_CACHE', str(tmp_path / 'cache'))


class Stop:
  """Asks to end at the n-th question."""

  def __init__(self, after=10**9):
    self.left = after

  def __call__(self):
    self.left -= 1
    return self.left < 0


def test_demonstrations_show_the_tools_that_prompts_show(parts, tmp_path):
  shown = []

  def rows(*args, tools, **kwargs):
    shown.append([tool['function']['name'] for tool in tools])
    raise InterruptedError

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(data, 'sft_rows', rows)
    for style in ('tiny', 'chatml'):
      with pytest.raises(InterruptedError):
        config = load_config(**{'text.style': style})
        tune(parts, tmp_path / style, config=config)
  assert shown[0] == [] and 'search' in shown[1]


def tune(parts, workdir, stop=None, config=None):
  workdir.mkdir(exist_ok=True)
  return finetune.run(
    config or load_config(),
    str(workdir),
    language=parts.language,
    model=parts.model,
    mesh=parts.mesh,
    params=parts.params,
    display=display.Display('quiet'),
    stop=stop or Stop(),
  )


def equal(one, two):
  return all(
    np.array_equal(a, b)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
  )


def losses(workdir):
  return [
    (row['step'], row['sft/loss']) for row in metrics.read(workdir, name='sft')
  ]


def test_it_learns_and_siblings_read_the_same_bytes(
  parts, tmp_path, monkeypatch
):
  one = tune(parts, tmp_path / 'a')
  assert not equal(one, parts.params)
  (first, second) = losses(tmp_path / 'a')
  assert (first[0], second[0]) == (10, 20) and second[1] < first[1]
  assert not (tmp_path / 'a' / 'sft').exists()
  monkeypatch.setattr(finetune, '_train', never)
  two = tune(parts, tmp_path / 'b')
  assert equal(one, two)
  path = 'sft.jsonl'
  assert (tmp_path / 'a' / path).read_bytes() == (
    tmp_path / 'b' / path
  ).read_bytes()


def never(*_):
  raise AssertionError('trained again')


def begin_rl(workdir):
  (workdir / 'checkpoints' / '1').mkdir(parents=True)


def test_a_run_keeps_what_it_began_with_on_other_devices(
  parts, tmp_path, monkeypatch
):
  one = tune(parts, tmp_path / 'a')
  begin_rl(tmp_path / 'a')
  monkeypatch.setattr(finetune.runtime, 'num_cores', lambda: 999)
  monkeypatch.setattr(finetune, '_train', never)
  assert equal(tune(parts, tmp_path / 'a'), one)
  with pytest.raises(AssertionError, match='trained again'):  # none of that run
    tune(parts, tmp_path / 'b')
  # What is gone from the cache is not taken for what another name holds.
  os.rename(tmp_path / 'cache', tmp_path / 'emptied')
  with pytest.raises(AssertionError, match='trained again'):
    tune(parts, tmp_path / 'a')


def test_one_host_takes_over_what_several_left_in_the_run(
  parts, tmp_path, monkeypatch
):
  with monkeypatch.context() as two:
    two.setattr(distributed, 'count', lambda: 2)
    two.setattr(distributed, 'exchange', lambda value: [value, value])
    one = tune(parts, tmp_path / 'a')
  assert not (tmp_path / 'cache' / 'sft').exists()
  begin_rl(tmp_path / 'a')
  monkeypatch.setattr(step.Learner, 'update', never)
  assert equal(tune(parts, tmp_path / 'a'), one)


@pytest.mark.parametrize('stops', [(0, 0), (3, 0, 9), (19,)])
def test_stopped_and_resumed_it_gives_the_same_weights(
  stops, parts, tmp_path, monkeypatch
):
  whole = tune(parts, tmp_path / 'whole')
  # Another cache: the result of the first must not be found.
  monkeypatch.setenv('AGENTRL_JAX_CACHE', str(tmp_path / 'other'))
  for after in stops:
    with pytest.raises(loop.Interrupted):
      tune(parts, tmp_path / 'run', Stop(after))
  assert equal(tune(parts, tmp_path / 'run'), whole)
  assert losses(tmp_path / 'run') == losses(tmp_path / 'whole')


@pytest.mark.parametrize('where', ['write_tree', 'rename'])
def test_killed_while_publishing_it_publishes_next_time(
  where, parts, tmp_path, monkeypatch
):
  def die(*_):
    raise SystemExit

  with monkeypatch.context() as patch:
    patch.setattr(
      *{
        'write_tree': (checkpoint, 'write_tree', die),
        'rename': (os, 'rename', die),
      }[where][:3]
    )
    with pytest.raises(SystemExit):
      tune(parts, tmp_path / 'a')
  again = tune(parts, tmp_path / 'a')
  assert equal(again, tune(parts, tmp_path / 'b'))
  assert [step for step, _ in losses(tmp_path / 'a')] == [10, 20]
  kept = list((tmp_path / 'cache' / 'sft').glob('[!.]*'))
  assert len(kept) == 1


def test_a_checkpoint_of_other_content_is_not_gone_on_from(parts, tmp_path):
  with pytest.raises(loop.Interrupted):
    tune(parts, tmp_path / 'a', Stop(12))
  other = load_config(**{'sft.observation_weight': '0.5'})
  asked = Stop(0)
  with pytest.raises(loop.Interrupted):
    tune(parts, tmp_path / 'a', asked, other)
  # Asked once, at update 0: nothing of the first was taken over.
  name = finetune.identity(
    other,
    assembly.demonstrations(other).directory.name,
    parts.language.tokenizer,
    parts.params,
  )
  saved = checkpoint.Checkpoints(str(tmp_path / 'a' / 'sft' / name), keep=1)
  assert saved.latest == 0
  saved.close()


def identity(parts, params=None, demonstrations='d', tokenizer=None, **sets):
  return finetune.identity(
    load_config(**sets),
    demonstrations,
    tokenizer or parts.language.tokenizer,
    parts.params if params is None else params,
  )


def test_the_name_of_a_result_is_all_that_it_depends_on(parts):
  base = identity(parts)
  assert base == identity(parts)
  other = params_lib.init(parts.model, jax.random.key(1))
  different = [
    identity(parts, params=other),
    identity(parts, demonstrations='e'),
    identity(
      parts, tokenizer=python_types.SimpleNamespace(files=lambda: {'a': 'b'})
    ),
    identity(parts, seed='1'),
    identity(parts, **{'sft.steps': '21'}),
    identity(parts, **{'sft.optimizer.learning_rate': '1e-3'}),
    identity(parts, **{'train.row_length': '512'}),
    identity(parts, **{'train.rows': '1'}),
    identity(parts, **{'train.head_chunk': '7'}),
    identity(
      parts, **{'train.param_dtype': 'bfloat16', 'model.dtype': 'bfloat16'}
    ),
    identity(parts, **{'model.dtype': 'bfloat16'}),
    identity(parts, **{'rollout.memory': 'window'}),
    identity(parts, **{'rollout.thinking': 'strip'}),
  ]
  assert len({base, *different}) == 1 + len(different)


@pytest.mark.parametrize(
  'field, value',
  [
    ('advantage.estimator', 'grpo'),
    ('train.iterations', '9'),
    ('rollout.group_size', '2'),
    ('eval.tasks', '3'),
    ('loss.kl_coef', '0.1'),
    ('checkpoint.sft_every', '3'),
  ],
)
def test_what_comes_after_does_not_change_the_name(field, value, parts):
  assert identity(parts) == identity(parts, **{field: value})


def test_weights_of_a_batch_add_up_to_one(parts):
  records = assembly.demonstrations(load_config())
  rows = data.sft_rows(
    [records[i] for i in range(20)],
    parts.language.tokenizer,
    'tiny',
    row_length=256,
    observation_weight=0.1,
  )
  batch = finetune.batch({name: value[:4] for name, value in rows.items()})
  assert batch.weights.sum() == pytest.approx(1.0, abs=1e-5)
  assert batch.weights.dtype == np.float32
  own, others = batch.weights[batch.mask], batch.weights[~batch.mask]
  assert own.min() == own.max() == pytest.approx(10 * others.max())


def test_divergence_is_told_with_what_to_change(parts, tmp_path):
  config = load_config(
    **{'sft.optimizer.learning_rate': '1e30', 'sft.optimizer.warmup': '0'}
  )
  with pytest.raises(FloatingPointError, match='sft.optimizer.learning_rate'):
    tune(parts, tmp_path / 'a', config=config)


LORA = {'lora.rank': '2', 'lora.sft': 'true'}


def tuned(parts, workdir, **sets):
  """Fine-tunes a policy with adapters: (before, after)."""
  config = load_config(**{**LORA, **sets})
  model = dataclasses.replace(parts.model, lora=adapters.of_config(config))
  inner = python_types.SimpleNamespace(**{**vars(parts), 'model': model})
  before = adapters.attach(config, model, parts.params, parts.mesh)
  return before, tune(inner, workdir, config=config)


def test_adapters_are_tuned_and_kept_alone(parts, tmp_path):
  before, after = tuned(parts, tmp_path / 'a')
  assert equal(lora.base(after), parts.params)
  assert not equal(lora.adapters(after), lora.adapters(before))
  (first, second) = losses(tmp_path / 'a')
  assert second[1] < first[1]
  (kept,) = (tmp_path / 'cache' / 'sft').glob('[!.]*')
  stored = checkpoint.read_tree(str(kept / 'params'), lora.split(after)[0])
  assert equal(stored, lora.split(after)[0])
  assert equal(tuned(parts, tmp_path / 'b')[1], after)


def test_without_it_all_weights_are_tuned_whatever_adapters_follow(
  parts, tmp_path
):
  whole = tune(parts, tmp_path / 'whole')
  _, after = tuned(parts, tmp_path / 'a', **{'lora.sft': 'false'})
  assert equal(after, whole)
  assert len(list((tmp_path / 'cache' / 'sft').glob('[!.]*'))) == 1
  assert identity(parts) == identity(parts, **{'lora.rank': '2'})
  assert identity(parts) != identity(parts, **LORA)
