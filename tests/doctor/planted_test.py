"""Each guard catches the fault it is for, planted into the real trainer."""

import importlib.util
import itertools
import re

import jax
import numpy as np
import pytest
import tiny_run

from agentrl_jax import assembly, metrics, rng
from agentrl_jax.doctor import findings
from agentrl_jax.rollout import collate, episode
from agentrl_jax.sampler import logits
from agentrl_jax.text import templates

_ITERATIONS = itertools.count(1)


@pytest.fixture(scope='module')
def trainer(tmp_path_factory):
  """One trainer for all plants, one healthy iteration behind it."""
  patch = pytest.MonkeyPatch()
  patch.setattr(assembly, 'tasks', tiny_run.tasks)
  one = tiny_run.trainer(
    tmp_path_factory.mktemp('planted'), **{'doctor.strict': 'none'}
  )
  one._iterate(0)
  yield one
  patch.undo()


def failed(trainer):
  return {f.check for f in findings.failures(trainer.doctor.findings)}


def test_a_healthy_iteration_is_all_green(trainer):
  row = trainer._iterate(next(_ITERATIONS))
  found = trainer.doctor.findings
  assert not findings.failures(found), findings.table(found)
  assert row['doctor/failed'] == 0
  # Nothing was left out: temperature, top-p, several turns and microbatches.
  asked = {f.check for f in found if f.status is findings.Status.OK}
  assert asked == findings.CHECKS.keys() - {'config'}
  assert row['doctor/checks'] == len(asked)
  assert row['rollout/turns'] > 1 and row['train/rows'] > 1


def wrap(patch, module, name, change):
  """Replaces a function by what `change` makes of its result."""
  plain = getattr(module, name)

  def planted(*args, **kwargs):
    return change(plain(*args, **kwargs), *args, **kwargs)

  patch.setattr(module, name, planted)


def stale_weights(patch, trainer):
  sampler = trainer.parts.collector.engine

  def publish(params, version):
    del params
    sampler.version = version
    return True

  patch.setattr(sampler, 'publish', publish)


def checksum_mismatch(patch, trainer):
  def change(result, params):
    del params
    copy, before = result
    return jax.tree.map(lambda x: x * 1.001, copy), before

  wrap(patch, trainer.parts.collector.engine, '_publish', change)


def draws_with(patch, trainer, change):
  wrap(patch, logits, 'draw', change)
  sampler = tiny_run.engine(trainer.config)
  patch.setattr(trainer.parts.collector, 'engine', sampler)


def temperature_missing(patch, trainer):
  def change(drawn, raw, *_):
    every = jax.nn.log_softmax(raw)
    picked = jax.numpy.take_along_axis(every, drawn.token[:, None], axis=1)
    return drawn._replace(logprob=picked[:, 0])

  draws_with(patch, trainer, change)


def top_p_mass_missing(patch, trainer):
  """The learner's side lacks the mass that the sampler's side has."""

  def change(drawn, *_):
    return drawn._replace(logprob=drawn.logprob - drawn.kept_logmass)

  draws_with(patch, trainer, change)


def shifted_mask(patch, trainer):
  def change(batch, *_, **__):
    return batch.replace(mask=np.roll(batch.mask, 1, axis=1))

  wrap(patch, collate, 'token_rows', change)


def observation_trained(patch, trainer):
  def change(batch, *_, **__):
    return batch.replace(mask=batch.segment_ids > 0)

  wrap(patch, collate, 'token_rows', change)


def rerendered_history(patch, trainer):
  """What was sampled is decoded and tokenised again."""
  plain = episode.Episode.complete
  tokenizer = trainer.parts.language.tokenizer

  def complete(self, tokens, logprobs, version, routes=None):
    again = tokenizer.encode(tokenizer.decode(tokens[:-1])) + [tokens[-1]]
    again = [*again, *tokens][: len(tokens)]
    return plain(self, again, logprobs, version, routes)

  patch.setattr(episode.Episode, 'complete', complete)


def doubled_end(patch, trainer):
  end = templates.stop_ids(trainer.parts.language.tokenizer, 'tiny')[0]
  wrap(patch, templates, 'extend', lambda ids, *_: (end, *ids))


def strips_thinking(patch, trainer):
  plain = templates.render

  def render(tokenizer, style, messages, tools=()):
    *history, last = messages
    history = [
      type(m)(m.role, re.sub('<think>.*</think>', '', m.content), m.calls)
      for m in history
    ]
    return plain(tokenizer, style, [*history, last], tools)

  patch.setattr(templates, 'render', render)


def equal_seeds(patch, trainer):
  plain = rng.sampling_words

  def words(seed, purpose, iteration, task, sample, attempt, turn):
    return plain(seed, purpose, iteration, task, 0, attempt, turn)

  patch.setattr(rng, 'sampling_words', words)


def same_keys_every_iteration(patch, trainer):
  plain = rng.sampling_words

  def words(seed, purpose, iteration, task, sample, attempt, turn):
    return plain(seed, purpose, 0, task, sample, attempt, turn)

  patch.setattr(rng, 'sampling_words', words)


def padding_in_statistics(patch, trainer):
  def change(batch, *_, **__):
    return batch.replace(turn_mask=np.ones_like(batch.turn_mask))

  wrap(patch, collate, 'turn_batch', change)


def microbatch_mean(patch, trainer):
  def change(batches, *_):
    return [
      b.replace(weights=b.weights / max(b.weights.sum(), 1e-9)) for b in batches
    ]

  wrap(patch, collate, 'microbatches', change)


def wrong_trajectory_weight(patch, trainer):
  """A trajectory weighs by its tokens."""

  def change(batch, *_, **__):
    return batch.replace(
      weights=np.where(batch.mask, 1 / batch.mask.sum(), 0).astype(np.float32)
    )

  wrap(patch, collate, 'with_weights', change)


PLANTS = {
  stale_weights: 'ratio',
  checksum_mismatch: 'published',
  temperature_missing: 'ratio',
  top_p_mass_missing: 'ratio',
  shifted_mask: 'mask',
  observation_trained: 'mask',
  rerendered_history: 'prefix',
  doubled_end: 'ends',
  strips_thinking: 'template',
  equal_seeds: 'keys',
  same_keys_every_iteration: 'keys',
  padding_in_statistics: 'turns',
  microbatch_mean: 'weights',
  wrong_trajectory_weight: 'weights',
}


@pytest.mark.parametrize('plant', PLANTS, ids=lambda f: f.__name__)
def test_the_fault_is_caught(plant, trainer, monkeypatch):
  plant(monkeypatch, trainer)
  trainer.parts.display.warnings.clear()
  row = trainer._iterate(next(_ITERATIONS))
  assert PLANTS[plant] in failed(trainer)
  assert row['doctor/failed'] == len(failed(trainer))
  warned = '\n'.join(trainer.parts.display.warnings)
  check = findings.CHECKS[PLANTS[plant]]
  assert check.causes in warned and check.remedy in warned


def test_an_unused_key_is_caught(capsys):
  path = tiny_run.ROOT / 'experiments' / 'launch.py'
  spec = importlib.util.spec_from_file_location('launch', path)
  launch = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(launch)
  code = launch.main(
    [f'--config={tiny_run.TINY}', '--config.rollout.group_sizes=4']
  )
  assert code == 2
  assert 'did you mean config.rollout.group_size?' in capsys.readouterr().err


def test_a_run_that_learns_what_is_wrong_stops_unsaved(
  trainer, tmp_path, monkeypatch
):
  one = tiny_run.trainer(tmp_path, trainer.parts.collector.engine)
  shifted_mask(monkeypatch, one)
  with pytest.raises(findings.Unsound, match='(?s)mask: .*likely: .*remedy: '):
    one.run()
  assert [row['step'] for row in metrics.read(tmp_path)] == [0]
  assert one._saved == 0


@pytest.mark.slow
def test_stale_weights_in_bfloat16(trainer, tmp_path, monkeypatch):
  """Rounding passes where float32 would not; one update's distance does not."""
  del trainer  # its tasks are patched in
  one = tiny_run.trainer(tmp_path, **{'model.dtype': 'bfloat16'})
  for iteration in range(2):
    row = one._iterate(iteration)
    found = one.doctor.findings
    assert not findings.failures(found), findings.table(found)
    asked = {f.check for f in found if f.status is findings.Status.OK}
    assert asked == findings.CHECKS.keys() - {'config'}
    assert row['policy/first_ratio_deviation'] > 1e-3
    assert 1e-4 < row['sampler/logprob_gap'] < 2e-2
  stale_weights(monkeypatch, one)
  with pytest.raises(findings.Unsound, match='mean .*above 0.02\n.*stale'):
    one._iterate(2)
  assert {'ratio', 'gap'} <= failed(one)


def test_only_the_first_iteration_is_examined_unless_told(trainer, monkeypatch):
  # The sampler is listened to in the first, the numbers of the row are read
  # in all: stale weights show from the second on, whenever that is.
  quiet = trainer.doctor
  with trainer.config.unlocked():
    monkeypatch.setitem(trainer.config.doctor, 'every', 0)
    trainer._iterate(next(_ITERATIONS))
    assert {f.check for f in quiet.findings} == {'published', 'ratio', 'gap'}
    stale_weights(monkeypatch, trainer)
    trainer._iterate(next(_ITERATIONS))
  assert 'ratio' in failed(trainer)
