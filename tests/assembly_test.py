"""From a config to parts: names, options, inheritance, fixed panels."""

import pathlib
from types import SimpleNamespace

import numpy as np
import pytest

from agentrl_jax import assembly, config, scorer, types
from agentrl_jax.text import templates, tools
from agentrl_jax.text import tokenizer as tokenizer_lib

ROOT = pathlib.Path(__file__).parents[1]
CONFIGS = sorted((ROOT / 'configs').rglob('*.py'))


@pytest.fixture(scope='module', autouse=True)
def caches(tmp_path_factory):
  patch = pytest.MonkeyPatch()
  patch.setenv('AGENTRL_JAX_DATA', str(tmp_path_factory.mktemp('data')))
  yield
  patch.undo()


def small(**overrides):
  fields = {'sft.demonstrations': '60', 'env.options': "{'legs': 1}"}
  return config.load(
    str(ROOT / 'configs' / 'smoke.py'), {**fields, **overrides}
  )


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_every_config_is_without_fault(path, monkeypatch):
  loaded = config.load(str(path))
  # A head is trained first, by commands that the config names.
  monkeypatch.setattr(scorer, 'load', lambda directory: directory)
  if ':' in loaded.model.weights:  # in a package that is optional
    pytest.importorskip(loaded.model.weights.partition(':')[0])
  config.validate(
    loaded,
    tables=assembly.TABLES,
    num_devices=1,
    more=assembly.faults(loaded),
  )
  docstring = config.load_module(str(path)).__doc__
  assert 'Claim' in docstring and 'Command: ' in docstring
  assert f'configs/{path.relative_to(ROOT / "configs")}' in docstring


def test_siblings_of_the_main_job_differ_in_what_they_say():
  main = config.flatten(config.load(str(ROOT / 'configs' / 'gigpo.py')))

  def changed(name):
    other = config.load(str(ROOT / 'configs' / f'{name}.py'))
    fields = config.flatten(other)
    changed = {key for key in fields if fields[key] != main[key]}
    return changed - {'advantage.options'}  # an estimator's own

  for name in ('grpo', 'reinforce', 'rloo'):
    assert changed(name) == {'advantage.estimator'}
  assert changed('hgpo') == {
    'advantage.estimator',
    'advantage.history_levels',
  }
  assert changed('sft') == {'train.iterations'}
  assert 'rollout.max_turns' in changed('rlvr') and len(changed('rlvr')) < 10


@pytest.mark.parametrize(
  'overrides, words',
  [
    ({'rewards': "(('outcom', 1.0),)"}, 'config.rewards'),
    ({'env.options': "{'wings': 2}"}, 'wings'),
    (
      {
        'env.name': 'mix',
        'env.options': "{'weights': {'repair': 1, 'sql': 1}}",
        'env.deadline_s': '20',
      },
      'above the wall_s=20.0',
    ),
    ({'text.style': 'tiny+xlm'}, "did you mean 'xml'"),
    ({'advantage.options.scale': 'iqr'}, "scale='iqr'"),
    ({'advantage.options.sharp': '1'}, "'sharp'"),
    ({'loss.options.sharp': '1'}, "'sharp'"),
    (
      {
        'advantage.estimator': 'vineppo',
        'env.name': 'agentrl_jax.envs.base:ToolEnv',
        'env.options': '{}',
      },
      'snapshot',
    ),
    ({'advantage.estimator': 'gae', 'advantage.options.lamb': '1'}, "'lamb'"),
    (
      {
        'advantage.estimator': 'reinforce_pp',
        'advantage.options.lam': '1',
      },
      "'lam'",
    ),
    (
      {
        'loss.proximal': 'latest',
        'loss.correction': "(('tis', {'cup': 2.0}),)",
      },
      'tis: truncated_importance_weights() got an unexpected keyword argument',
    ),
    (
      {'loss.proximal': 'latest', 'loss.correction': "(('tsi', {}),)"},
      "unknown name 'tsi'",
    ),
  ],
)
def test_a_fault_of_names_and_options_is_told(overrides, words):
  (fault,) = assembly.faults(small(**overrides))
  assert fault.startswith('config.') and words in fault


def test_the_tokenizer_does_not_depend_on_the_seed_and_knows_the_errors():
  one = assembly.language(small()).tokenizer
  two = assembly.language(small(seed='7')).tokenizer
  assert one.files() == two.files()
  lengths = [
    len(one.encode(f'error: {text}')) for text in tools.error_texts('tiny')
  ]
  assert np.mean(lengths) < 20 and max(lengths) < 40  # not letter by letter


def test_the_tokenizer_learns_calls_in_the_notation_of_the_style():
  call = "[order(flight='CA1501')]"
  given = assembly.language(small(**{'text.style': 'tiny+python'}))
  assert given.style == given.tokenizer.style == 'tiny+python'
  usual = assembly.language(small()).tokenizer
  assert len(given.tokenizer.encode(call)) < len(usual.encode(call)) / 2


def test_the_tokenizer_learns_the_tools_that_its_prompts_list():
  fields = {'text.vocab_size': '600'}
  shows = small(**fields, **{'text.style': 'qwen3'})
  listing = templates.shown('qwen3', assembly.schemas(shows))
  assert '"name": "check_seat"' in listing
  tok = assembly.language(shows).tokenizer
  usual = assembly.language(small(**fields)).tokenizer
  assert len(tok.encode(listing)) < len(usual.encode(listing)) / 2
  assert assembly.schemas(small()) == ()


def test_demonstrations_of_a_mix_list_the_tools_of_their_world():
  fields = {
    'env.name': 'mix',
    'env.options': "{'weights': {'sql': 1, 'desk': 1}}",
    'sft.demonstrations': '12',
  }
  listed = {}
  for style in ('tiny', 'qwen3'):
    c = small(**fields, **{'text.style': style})
    assert assembly.schemas(c) == ()
    listed[style] = [
      {tool['function']['name'] for tool in record.get('tools', ())}
      for record in assembly.with_tools(c, assembly.demonstrations(c))
    ]
  assert not any(listed['tiny'])
  assert all(listed['qwen3']) and len(set(map(frozenset, listed['qwen3']))) == 2


def test_weights_of_another_run_come_with_its_tokenizer(tmp_path):
  other = tokenizer_lib.train(['abc abc'] * 5, vocab_size=300, style='tiny')
  other.save(tmp_path / 'tokenizer')
  inherited = assembly.language(small(init_from=str(tmp_path))).tokenizer
  assert inherited.files() == other.files()
  given = assembly.language(
    small(**{'text.tokenizer': str(tmp_path / 'tokenizer')})
  )
  assert given.tokenizer.files() == other.files()


def test_panels_are_the_same_whatever_the_seed():
  one, two = (
    [assembly.tasks(small(seed=seed), split)[5] for split in ('train', 'test')]
    for seed in ('0', '1')
  )
  assert one == two
  assert all(isinstance(task, types.Task) for task in one)
  assert one[0].data != one[1].data


def test_the_policy_takes_its_shape_from_the_config():
  model = assembly.model_config(small(), 123)
  assert (model.vocab_size, model.d_model, model.dtype) == (123, 64, 'float32')


def test_keys_and_values_stay_within_their_budget(monkeypatch):
  """3 layers, 2 heads of 32, float32: 2 x 3 x 2 x 32 x 4 = 1,536 bytes a token.

  64 slots of 256 tokens are 25.2 MB, and 50 fit into 20 MB.
  """
  made = []
  monkeypatch.setattr(assembly, 'Engine', lambda *a, **k: made.append(k))
  monkeypatch.setattr(assembly.templates, 'stop_ids', lambda *_: (1,))
  lang = SimpleNamespace(tokenizer=None, style='tiny')
  c = config.default()
  model = assembly.model_config(c, 300)

  def built(kv_gb, slots=64):
    c.sampler.kv_gb, c.sampler.slots = kv_gb, slots
    assembly.engine(c, model, lang, None)

  for budget, slots in ((0.0, 64), (0.026, 64), (0.02, 50)):
    built(budget, slots)
  assert [k['num_slots'] for k in made] == [64, 64, 50]
  with pytest.raises(config.ConfigError, match=r'kv_gb=0.02: .*; 50 slots fit'):
    built(0.02)
  with pytest.raises(config.ConfigError, match='0.0252 GB; not one slot fits'):
    built(1e-6)


def test_a_digest_is_of_content_not_of_order():
  assert assembly.digest({'a': 1, 'b': (2, 3)}) == assembly.digest(
    {'b': [2, 3], 'a': 1}
  )
  assert assembly.digest({'a': 1}) != assembly.digest({'a': 2})
  assert assembly.digest({'a': 1}) != assembly.digest({'a': '1'})


def test_attention_takes_rows_of_all_lengths(monkeypatch):
  monkeypatch.setattr('jax.default_backend', lambda: 'tpu')
  sets = {'train.row_length': '1024', 'rollout.max_context': '1024'}
  for lengths, name in (
    ('()', 'splash'),
    ('(512,)', 'splash'),
    ('(64,)', 'xla'),
  ):
    model = assembly.model_config(
      small(**sets, **{'train.shorter_rows': lengths}), 300
    )
    assert model.attention == name, lengths
  sets |= {'train.shorter_rows': '(64,)', 'model.attention': 'splash'}
  with pytest.raises(config.ConfigError, match='multiple of 128, not 64'):
    assembly.model_config(small(**sets), 300)
