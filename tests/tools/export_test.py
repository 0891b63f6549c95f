"""tools/export.py: what it writes is the run's policy, and others load it."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from agentrl_jax import adapters, assembly, checkpoint, config, weights
from agentrl_jax.models import hf, lora, params, peft
from agentrl_jax.text import tokenizer

ROOT = pathlib.Path(__file__).parents[2]


def export(*arguments):
  return subprocess.run(
    [sys.executable, str(ROOT / 'tools/export.py'), *map(str, arguments)],
    capture_output=True,
    text=True,
    cwd=ROOT,
  )


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Two checkpoints, the first the better one."""
  path = tmp_path_factory.mktemp('run')
  settings = config.default()
  settings.model.update(num_layers=2, d_model=16, head_dim=4, d_ff=24)
  (path / 'config.json').write_text(config.to_json(settings))
  tok = tokenizer.train(['Book.'], vocab_size=270)
  tok.save(path / 'tokenizer')
  model = assembly.model_config(settings, tok.vocab_size)
  saved = checkpoint.Checkpoints(
    str(path / 'checkpoints'), keep=1, best_metric='eval/success'
  )
  policies = {}
  for step, success in ((1, 0.9), (2, 0.5)):
    draw = np.random.default_rng(step)
    policies[step] = jax.tree.map(
      lambda x, draw=draw: draw.normal(size=x.shape).astype(np.float32),
      params.abstract(model),
    )
    state = {'params': policies[step], 'opt_state': {'m': np.ones(3)}}
    saved.save(step, state, {'eval/success': success})
  saved.close()
  return path, policies


@pytest.mark.parametrize(('which', 'step'), (('last', 2), ('best', 1)))
def test_the_chosen_policy_is_written(run, which, step, tmp_path):
  path, policies = run
  done = export(path, f'--to={tmp_path}', f'--which={which}')
  assert done.returncode == 0, done.stderr
  assert f'iteration {step}' in done.stdout
  _, loaded = hf.load(tmp_path)
  jax.tree.map(np.testing.assert_array_equal, loaded, policies[step])
  tok = tokenizer.load(tmp_path)
  assert tok.files() == tokenizer.load(path / 'tokenizer').files()
  for name in ('config.json', 'generation_config.json'):
    fields = json.loads((tmp_path / name).read_text())
    assert fields['eos_token_id'] == tok.end_id
    assert fields['pad_token_id'] == tok.pad_id
  assert (tmp_path / 'chat_template.jinja').read_text() == tok.chat_template


def test_faults_are_told_in_a_line(run, tmp_path):
  done = export(run[0], f'--to={tmp_path / "a"}', '--which=7')
  assert done.returncode == 1
  assert 'last, best or one of [1, 2]' in done.stderr
  done = export(tmp_path, f'--to={tmp_path / "a"}')
  assert done.returncode == 1
  assert 'no run directory' in done.stderr
  assert 'Traceback' not in done.stderr


@pytest.fixture(scope='module')
def adapted(run, tmp_path_factory):
  """A run with adapters: (directory, model, params with them)."""
  path = tmp_path_factory.mktemp('adapted')
  settings = config.of_run(run[0])
  settings.lora.rank = 2
  (path / 'config.json').write_text(config.to_json(settings))
  tok = tokenizer.load(run[0] / 'tokenizer')
  tok.save(path / 'tokenizer')
  model = assembly.model_config(settings, tok.vocab_size)
  mesh = assembly.mesh(settings)
  base = weights.first_params(settings, model, mesh)
  whole = adapters.attach(settings, model, base, mesh)
  trained, _ = lora.split(whole)
  trained = jax.tree.map(lambda x: x + 0.1, trained)
  saved = checkpoint.Checkpoints(str(path / 'checkpoints'), keep=1)
  meta = {'base': adapters.digest(base)}
  saved.save(3, {'params': trained, 'opt_state': np.ones(3)}, meta)
  saved.close()
  return path, model, lora.join(trained, base)


def load_tool():
  spec = importlib.util.spec_from_file_location('x', ROOT / 'tools/export.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_parts_of_a_policy_with_adapters(adapted, tmp_path):
  path, model, whole = adapted
  tool = load_tool()
  for part in tool.PARTS:
    arguments = [str(path), f'--to={tmp_path / part}', f'--part={part}']
    assert tool.main(arguments) == 0
    assert (tmp_path / part / 'tokenizer.json').is_file()
  _, base = hf.load(tmp_path / 'base')
  jax.tree.map(np.testing.assert_array_equal, base, lora.base(whole))
  _, merged = hf.load(tmp_path / 'policy')
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
    merged,
    lora.merge(model.lora, whole),
  )
  again = peft.load(tmp_path / 'adapter', model)
  jax.tree.map(np.testing.assert_array_equal, again, lora.split(whole)[0])
  assert not (tmp_path / 'adapter' / 'config.json').exists()


def test_adapters_are_written_in_their_own_type(adapted, tmp_path, capsys):
  arguments = [str(adapted[0]), f'--to={tmp_path / "x"}', '--part=adapter']
  assert load_tool().main([*arguments, '--dtype=bfloat16']) == 1
  assert '--dtype=bfloat16: adapters are written' in capsys.readouterr().err
  assert not (tmp_path / 'x').exists()


def test_a_run_without_adapters_has_none_to_export(run, tmp_path, capsys):
  arguments = [str(run[0]), f'--to={tmp_path}', '--part=adapter']
  assert load_tool().main(arguments) == 1
  assert 'no adapters: only --part=policy' in capsys.readouterr().err
