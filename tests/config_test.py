"""Locks the configuration: faults told all at once, overrides, round trips."""

import importlib.util
import json
import pathlib

import ml_collections
import pytest

from agentrl_jax import config

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(
  str(path.relative_to(ROOT)) for path in (ROOT / 'configs').rglob('*.py')
)


def faults(call, *args, **kwargs):
  with pytest.raises(config.ConfigError) as error:
    call(*args, **kwargs)
  for fault in error.value.faults:
    assert f'  - {fault}' in str(error.value)
  return error.value.faults


def write(tmp_path, body, name='mine.py'):
  path = tmp_path / name
  path.write_text(
    'from agentrl_jax import config as lib\n\n\ndef get_config():\n'
    f'  c = lib.default()\n  {body}\n  return c\n'
  )
  return str(path)


@pytest.fixture
def file(tmp_path):
  return write(tmp_path, 'c.seed = 7')


def test_defaults_are_valid():
  config.validate(config.default(), num_devices=1)
  assert config.diff(config.default()) == {}


@pytest.mark.parametrize('name', FILES)
def test_files_load_and_are_valid_also_every_trial(name, monkeypatch):
  from agentrl_jax import assembly, scorer

  # A head is trained first, by commands that the config names.
  monkeypatch.setattr(scorer, 'load', lambda directory: directory)
  path = str(ROOT / name)
  loaded = config.load(path)
  if ':' in loaded.model.weights:  # in a package that is optional
    pytest.importorskip(loaded.model.weights.partition(':')[0])
  options = dict(tables=assembly.TABLES, num_devices=1)
  config.validate(loaded, more=assembly.faults(loaded), **options)
  config.validate(loaded, **options)
  json.loads(config.to_json(loaded))
  module = config.load_module(path)
  assert len(module.__doc__.strip()) > 80, 'a config is a lab note'
  for trial in getattr(module, 'sweep', list)():
    fields = {k: str(v) for k, v in trial.items() if k != 'arm'}
    config.validate(config.load(path, fields), **options)


def test_every_fault_is_told_at_once():
  c = config.default()
  c.seed = -1
  c.model.num_kv_heads = 3
  c.model.head_dim = 5
  c.rollout.max_context = 100
  c.rollout.top_p = 1.5
  c.rollout.temperature = 0.0
  c.train.optimizer.name = 'adma'
  c.train.row_length = 8
  c.sampler.extend_rows = 1000
  c.sampler.lanes = 3
  c.sft.rows = 6
  c.sampler.decode_chunk = 0
  c.loss.weighting = 'constant'
  c.loss.kl_coef = float('nan')
  c.rewards = ()
  c.mesh.fsdp = 3
  c.env.name = 'fligt'
  found = faults(
    config.validate,
    c,
    tables={'env.name': ('flight', 'arithmetic')},
    num_devices=4,
    more=['config.more: told by another'],
  )
  for field in (
    'seed=-1: must be >= 0',
    'model.num_heads=4: not a multiple of config.model.num_kv_heads=3',
    'model.head_dim=5',
    'rollout.max_context=100',
    'rollout.top_p=1.5: must be > 0 and <= 1.0',
    'rollout.temperature=0.0: must be > 0',
    "train.optimizer.name='adma': not one of adam, adamw, muon, sgd (did you",
    'train.row_length=8',
    'sampler.extend_rows=1000',
    'sampler.lanes=3: must divide',
    'sampler.decode_chunk=0',
    'sft.rows=6: must be a multiple of config.train.rows=4',
    'loss.weighting_constant',
    'loss.kl_coef=nan',
    'rewards',
    'mesh=',
    "env.name='fligt': not one of arithmetic, flight (did you mean 'flight'?)",
    'more: told by another',
  ):
    assert sum(f.startswith(f'config.{field}') for f in found) == 1, field
  assert len(found) == 18


@pytest.mark.parametrize(
  'rewards', ['()', '(1.0,)', "('outcome', 1.0)", "(('outcome', '1'),)"]
)
def test_rewards_are_pairs(file, rewards):
  from agentrl_jax import assembly

  c = config.load(file, {'rewards': rewards})
  (fault,) = faults(config.validate, c, more=assembly.faults(c))
  assert fault.startswith('config.rewards: a non-empty tuple of (name, weight)')


def test_options_of_rewards_are_checked_and_told_together(file):
  from agentrl_jax import assembly

  given = (
    "(('outcome', 1.0), ('length', 0.1, {'budget': 9}), "
    "('turns', 0.1, {'free': -1}), ('turns', 0.1, {'fre': 1}), "
    "('format', 0.1, {'pattern': '('}))"
  )
  c = config.load(file, {'rewards': given})
  found = ' '.join(faults(config.validate, c, more=assembly.faults(c)))
  for text in (
    "rewards: length: missing a required argument: 'buffer'",
    'rewards: turns: free=-1: give 0 or more',
    "rewards: turns: got an unexpected keyword argument 'fre'",
    "rewards: format: pattern='('",
    'name each part once',
  ):
    assert text in found
  fine = "(('length', 0.1, {'budget': 9, 'buffer': 3}),)"
  c = config.load(file, {'rewards': fine})
  config.validate(c, more=assembly.faults(c))
  (entry,) = json.loads(config.to_json(c))['rewards']
  assert entry == ['length', 0.1, {'budget': 9, 'buffer': 3}]


def test_an_unknown_reward_and_option_are_told_together(file):
  from agentrl_jax import assembly

  c = config.load(
    file,
    {
      'rewards': "(('outcom', 1.0),)",
      'advantage.options.gama': '1',
      'loss.options.clip_lo': '1',
      'env.options.leggs': '1',
    },
  )
  found = ' '.join(faults(config.validate, c, more=assembly.faults(c)))
  for text in ('outcom', "'gama'", "'clip_lo'", 'leggs'):
    assert text in found
  for part in ('env', 'loss', 'advantage'):
    assert f'config.{part}.options: ' in found


def test_an_audit_is_by_a_part_that_nobody_trains_on(file):
  from agentrl_jax import assembly

  c = config.load(file, {'audit_reward': 'outcome'})
  (fault,) = faults(config.validate, c, more=assembly.faults(c))
  assert 'it is among config.rewards' in fault
  c = config.load(file, {'audit_reward': 'outcom'})
  (fault,) = faults(config.validate, c, more=assembly.faults(c))
  assert fault.startswith('config.audit_reward: unknown name')
  assert 'outcome' in fault


def test_thresholds_that_cannot_be(file):
  c = config.load(file, {'watch.length_drift': '0.5', 'watch.entropy': '-1'})
  found = faults(config.validate, c)
  assert [fault.split('=')[0] for fault in found] == [
    'config.watch.entropy',
    'config.watch.length_drift',
  ]
  config.validate(config.load(file, {'watch.length_drift': '0'}))


@pytest.mark.parametrize(
  'sets, words',
  [
    ({'loss.correction': "(('tis', {}),)"}, 'set proximal to recomputed'),
    (
      {'loss.correction': "('tis',)", 'loss.proximal': 'latest'},
      'a tuple of (name, options) pairs',
    ),
    ({'loss.proximal': 'latset'}, "did you mean 'latest'"),
    ({'advantage.kl_in_reward': '0.1'}, "estimator 'gigpo' compares outcomes"),
    ({'advantage.bootstrap': 'always'}, 'not one of limit, none'),
    ({'train.constant_groups': 'refil'}, "did you mean 'refill'"),
    ({'rollout.max_refills': '0'}, 'must be >= 1'),
    ({'train.overlong': 'mask'}, 'not one of drop, keep'),
    ({'loss.value_clip': '-1.0'}, 'must be >= 0'),
  ],
)
def test_learning_that_cannot_be(file, sets, words):
  (fault,) = faults(config.validate, config.load(file, sets))
  assert words in fault


def test_rows_that_do_not_divide_over_the_mesh():
  c = config.default()
  c.mesh.data, c.mesh.fsdp = -1, 2
  c.train.rows, c.sft.rows = 12, 24
  (fault,) = faults(config.validate, c, num_devices=8)
  assert fault.startswith('config.train.rows=12: must be a multiple of 8')


def test_a_dotted_name_is_let_through():
  c = config.default()
  c.env.name = 'my.package:Env'
  config.validate(c, tables={'env.name': ('flight',)})


@pytest.mark.parametrize(
  'sizes, devices, match',
  [
    ((1, 1, 1), 8, 'does not fit 8'),
    ((-1, 1, 3), 8, 'does not fit 8'),
    ((-1, -1, 1), 8, 'at most one axis'),
    ((0, 1, 1), None, 'sizes are >= 1'),
    ((-2, 1, 1), None, 'sizes are >= 1'),
  ],
)
def test_meshes_that_cannot_be(sizes, devices, match):
  c = config.default()
  c.mesh.data, c.mesh.fsdp, c.mesh.tensor = sizes
  (fault,) = faults(config.validate, c, num_devices=devices)
  assert fault.startswith('config.mesh=') and match in fault


@pytest.mark.parametrize(
  'sizes, devices', [((2, 2, 2), 8), ((-1, 1, 4), 8), ((2, 2, 2), None)]
)
def test_meshes_that_can_be(sizes, devices):
  c = config.default()
  c.mesh.data, c.mesh.fsdp, c.mesh.tensor = sizes
  c.train.rows = c.sft.rows = 8
  config.validate(c, num_devices=devices)


@pytest.mark.parametrize(
  'field, text, value',
  [
    ('seed', '3', 3),
    ('train.optimizer.learning_rate', '1e-3', 1e-3),
    ('train.optimizer.learning_rate', '1', 1.0),
    ('model.qk_norm', 'False', False),
    ('model.tie_embeddings', '1', True),
    ('model.remat', 'dots', 'dots'),
    ('loss.name', 'gspo', 'gspo'),
    ('init_from', '1', '1'),  # text stays text
    (
      'rewards',
      "(('outcome', 2.0), ('x', 1.0))",
      (('outcome', 2.0), ('x', 1.0)),
    ),
    ('rewards', "[('outcome', 2.0)]", (('outcome', 2.0),)),
    ('env.options.legs', '1', 1),
    ('env.options.mode', 'hard', 'hard'),
    ('env.options', "{'legs': 3, 'on': True}", {'legs': 3, 'on': True}),
  ],
)
def test_overrides_of_every_type(file, field, text, value):
  out = config.load(file, {field: text})
  *path, last = field.split('.')
  node = out
  for part in path:
    node = node[part]
  got = node[last]
  got = got.to_dict() if isinstance(got, ml_collections.ConfigDict) else got
  assert got == value and type(got) is type(value)
  assert out.seed == (3 if field == 'seed' else 7)


def test_faulty_overrides_are_told_together(file):
  found = faults(
    config.load,
    file,
    {
      'train.itterations': '3',
      'seed': 'three',
      'model.qk_norm': 'perhaps',
      'train.rows': '1.5',
      'train.epochs': 'True',
      'rollout.temperature': 'False',
      'loss.kl_coef': 'none',
      'env.options': '[1]',
      'seed.deep': '1',
      'rewards': '3',
    },
  )
  assert len(found) == 10
  assert 'did you mean config.train.iterations?' in found[0]
  for field, fault in zip(
    (
      'seed=three: expected int, got str',
      'model.qk_norm=perhaps: expected true or false',
      'train.rows=1.5: expected int, got float',
      'train.epochs=True: expected int, got bool',
      'rollout.temperature=False: expected float, got bool',
      'loss.kl_coef=none: expected float, got str',
      'env.options=[1]: expected a dict literal',
      'seed.deep: unknown field',
      'rewards=3: expected tuple, got int',
    ),
    found[1:],
  ):
    assert fault.startswith(f'config.{field}')


@pytest.mark.parametrize(
  'body, match',
  [
    ('c.sed = 1', 'sed'),
    ("c.seed = 'one'", 'seed'),
    ('c.train.itterations = 3', 'itterations'),
    ('1 / 0', 'division by zero'),
  ],
)
def test_a_faulty_file_is_told_in_a_line(tmp_path, body, match):
  path = write(tmp_path, body)
  (fault,) = faults(config.load, path)
  assert 'mine.py' in fault and match in fault


@pytest.mark.parametrize('text', ['def broken(:', 'x = 1\n'])
def test_a_file_that_is_no_config(tmp_path, text):
  (tmp_path / 'bad.py').write_text(text)
  (fault,) = faults(config.load, str(tmp_path / 'bad.py'))
  assert 'bad.py' in fault


def test_a_missing_file_names_the_nearest(tmp_path, file):
  (fault,) = faults(config.load, str(tmp_path / 'mine2.py'))
  assert 'no such file' in fault and f'did you mean {file}?' in fault


def test_unknown_and_missing_fields():
  c = config.default()
  with c.unlocked():
    c.train.optimiser = 3
    del c.train.rows
  found = faults(config.validate, c)
  assert found[0].startswith('config.train.optimiser: unknown field; did you')
  assert found[1] == 'config.train.rows: missing'


def test_a_typo_fails_at_once():
  with pytest.raises(AttributeError):
    config.default().train.itterations = 3


def test_diff_and_flatten(file):
  c = config.load(file, {'env.options.legs': '1', 'train.rows': '8'})
  assert config.diff(c) == {
    'seed': 7,
    'train.rows': 8,
    'env.options': {'legs': 1},
  }
  flat = config.flatten(c)
  assert flat['train.optimizer.name'] == 'adam'
  assert not any(
    isinstance(v, ml_collections.ConfigDict) for v in flat.values()
  )
  assert config.default().env.options.to_dict() == {}  # nothing is shared


def test_json_round_trips_and_is_sorted(file):
  c = config.load(file, {'env.options.legs': '1'})
  text = config.to_json(c)
  read = json.loads(text)
  assert read['env']['options'] == {'legs': 1} and read['seed'] == 7
  assert read['rewards'] == [['outcome', 1.0]]
  assert text == json.dumps(read, indent=2, sort_keys=True)


def test_no_field_is_a_reference_or_unset(file):
  c = config.load(file)

  def walk(node):
    for key in node:
      assert not isinstance(node.get_ref(key).get(), type(None)), key
      assert not isinstance(node[key], ml_collections.FieldReference)
      if isinstance(node[key], ml_collections.ConfigDict):
        walk(node[key])

  walk(c)


def test_siblings_build_on_each_other(tmp_path, file):
  path = tmp_path / 'other.py'
  path.write_text(
    'from agentrl_jax import config as lib\n\n\ndef get_config():\n'
    "  c = lib.load_sibling(__file__, 'mine.py')\n  c.train.rows = 2\n"
    '  return c\n'
  )
  c = config.load(str(path))
  assert (c.seed, c.train.rows) == (7, 2)
  assert importlib.util.find_spec('agentrl_config') is None  # not left behind
