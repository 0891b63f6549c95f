"""Locks that the recipes of experiments/cluster name what there is."""

import importlib.util
import pathlib
import re
import subprocess

import pytest
import yaml

from agentrl_jax import config as config_lib

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / 'experiments' / 'cluster'
RECIPES = sorted(p.name for p in FOLDER.iterdir() if p.is_file())
# What a cluster would fill in.
VARIABLES = {
  'SLURM_JOB_ID': '7',
  'SKYPILOT_NUM_NODES': '2',
  'SKYPILOT_NODE_RANK': '1',
  'JOB_COMPLETION_INDEX': '1',
  'RUNS': '/runs',
  'head': '10.0.0.1',
  'runs': '/mnt/runs',
}


def shell(name):
  """The lines of a recipe that a shell reads."""
  text = (FOLDER / name).read_text()
  if name.endswith('.yaml'):
    tree = yaml.safe_load(text)
    if 'run' in tree:
      return f'{tree["setup"]}\n{tree["run"]}'
    (job,) = tree['spec']['replicatedJobs']
    (container,) = job['template']['spec']['template']['spec']['containers']
    return container['command'][-1]
  if name.endswith('.py'):
    return text.split('"""')[1].replace(' -- ', ' ')
  return text


def arguments(name):
  """Flags of launch.py, variables filled in."""
  text = re.sub(r'\\\n\s*', '', shell(name))
  (line,) = [x for x in text.splitlines() if '--config=' in x]
  for key, value in VARIABLES.items():
    line = re.sub(rf'\$\{{?{key}\b\}}?', value, line)
  assert '$' not in re.sub(r'\$(name|zone)|\$\?', '', line), line
  return re.findall(r'--config[\w.]*=[^\s"\']+|--workdir=\S+', line)


def test_every_kind_of_cluster_has_one():
  assert RECIPES == [
    'gke.yaml',
    'on_ray.py',
    'skypilot.yaml',
    'slurm.sbatch',
    'tpu_slice.sh',
  ]


@pytest.mark.parametrize('name', [n for n in RECIPES if not n.endswith('.py')])
def test_shells_read_them(name):
  done = subprocess.run(
    ['bash', '-n'], input=shell(name), text=True, capture_output=True
  )
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('name', RECIPES)
def test_flags_are_those_of_a_valid_config(name):
  given = dict(a.removeprefix('--').split('=', 1) for a in arguments(name))
  assert given['workdir']
  path = ROOT / given.pop('config')
  sets = {
    k.removeprefix('config.'): v for k, v in given.items() if k != 'workdir'
  }
  config = config_lib.load(str(path), sets)
  if name != 'on_ray.py':
    assert config.distributed.coordinator
  # Two hosts of eight devices each.
  config_lib.validate(config, num_devices=16, num_hosts=2)


def test_ray_tells_each_node_who_it_is():
  path = FOLDER / 'on_ray.py'
  spec = importlib.util.spec_from_file_location('on_ray', path)
  on_ray = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(on_ray)
  line = on_ray.command(['--config=configs/smoke.py'], '10.0.0.1', 2, 1)
  assert pathlib.Path(line[1]) == ROOT / 'experiments' / 'launch.py'
  sets = dict(a.removeprefix('--config.').split('=', 1) for a in line[3:])
  config = config_lib.load(str(ROOT / 'configs' / 'smoke.py'), sets)
  assert config.distributed.coordinator == '10.0.0.1:8476'
  assert (config.distributed.num_processes, config.distributed.process_id) == (
    2,
    1,
  )
