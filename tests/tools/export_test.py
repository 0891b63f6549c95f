"""tools/export.py: what it writes is the run's policy, and others load it."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from agentrl_jax import (
  adapters,
  assembly,
  checkpoint,
  config,
  data,
  types,
  weights,
)
from agentrl_jax.models import hf, lora, params, peft
from agentrl_jax.rollout import store
from agentrl_jax.text import templates, tokenizer, tools

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


def episode(tok, task, sample, paid):
  """Two turns, one of which calls, in the one context that they make."""
  call = tools.render_call(types.ToolCall('search', {'from': str(sample)}))
  prompt = types.Message('system', 'Book.'), types.Message('user', task)
  said = call, 'done'
  reply = types.Message('tool', '2 flights')
  messages = [*prompt, types.Message('assistant', call), reply]
  tokens = templates.render(
    tok, 'tiny', [*messages, types.Message('assistant', 'done')]
  )
  size = len(tokens.ids)
  context = types.Context(
    tokens.ids, tokens.sampled_mask, (0.0,) * size, (0,) * size
  )
  turns = [
    types.Turn(0, 0, 0, text, (), '', None, replies, reward)
    for text, replies, reward in zip(said, ((reply,), ()), (0.0, paid))
  ]
  rewards = {'total': (0.0, paid)}
  return types.Trajectory(
    types.Task('flight', 'train', int(task), {}), sample, prompt,
    tuple(turns), (context,), types.StopReason.DONE, rewards,
  )  # fmt: skip


@pytest.fixture(scope='module')
def played(run):
  """Iteration 7: of task 1 two of three succeed, of task 2 nobody."""
  tok = tokenizer.load(run[0] / 'tokenizer')
  paid = {'1': (0.0, 1.0, 1.0), '2': (0.0, 0.0)}
  made = [
    episode(tok, task, i, x) for task in paid for i, x in enumerate(paid[task])
  ]
  store.write(run[0], 7, made)
  return run[0], tok, made


@pytest.mark.parametrize('more', [[], ['--tokens']])
def test_episodes_come_back_as_demonstrations(played, tmp_path, more, capsys):
  path, tok, made = played
  file = tmp_path / 'chat.jsonl'
  arguments = [str(path), f'--to={file}', '--part=chat', '--which=all']
  assert load_tool().main(arguments + more) == 0
  assert '2 records' in capsys.readouterr().out
  lines = [json.loads(line) for line in file.read_text().splitlines()]
  assert all(('contexts' in line) == bool(more) for line in lines)
  call = lines[0]['messages'][2]['tool_calls'][0]['function']
  assert call == {'name': 'search', 'arguments': {'from': '1'}}
  records = data.Conversations(str(file))
  found = data.sft_rows(records, tok, 'tiny', row_length=256)
  want = data.pack(
    [
      types.Tokens(t.contexts[0].tokens, t.contexts[0].sampled_mask)
      for t in made[1:3]
    ],
    row_length=256,
    observation_weight=0.1,
  )
  for name, values in want.items():
    np.testing.assert_array_equal(found[name], values)


def test_the_best_and_the_worst_of_a_group_are_a_pair(played, tmp_path):
  file = tmp_path / 'pairs.jsonl'
  arguments = [str(played[0]), f'--to={file}', '--part=preference']
  assert load_tool().main(arguments) == 0
  (pair,) = map(json.loads, file.read_text().splitlines())
  sides = [pair[s][0]['tool_calls'][0] for s in ('chosen', 'rejected')]
  froms = [side['function']['arguments']['from'] for side in sides]
  assert froms == ['1', '0']
  assert pair['prompt'][1] == {'role': 'user', 'content': '1'}


def test_no_episode_is_said(played, tmp_path, capsys):
  arguments = [str(played[0]), f'--to={tmp_path / "a"}', '--part=chat']
  assert load_tool().main([*arguments, '--above=1']) == 1
  assert 'no train episode to write' in capsys.readouterr().err
  assert load_tool().main([*arguments, '--which=6']) == 1
  assert 'train has steps [7]' in capsys.readouterr().err
