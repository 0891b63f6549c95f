"""A mix is each of its worlds in turn, with its tools, options and reward."""

import collections

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import contract, mix, scripted


def test_contract():
  contract.check_env('mix', num_tasks=2, weights={'sql': 1, 'desk': 1})


def test_worlds_come_as_often_as_their_weights_say():
  names = collections.Counter(
    mix.generate(seed, weights={'arithmetic': 3, 'desk': 1})['env']
    for seed in range(400)
  )
  assert 260 < names['arithmetic'] < 340  # 300 expected, standard deviation 9
  assert names.total() == 400


def test_the_task_is_the_worlds_own():
  options = {'arithmetic': {'operators': '*'}}
  data = mix.generate(3, weights={'arithmetic': 1}, options=options)
  assert data['data']['operator'] == '*'
  env = envs.make('mix', weights={'arithmetic': 1}, options=options)
  task = types.Task('mix', 'test', 0, data)
  (question,) = env.reset(task).messages
  left, right = data['data']['left'], data['data']['right']
  assert question.content == f'{left}*{right}=?'
  assert env.step(types.Action(str(left * right))).reward == 1.0
  with pytest.raises(RuntimeError, match='single-use'):
    env.reset(task)


def test_tools_and_options_of_the_environment_arrive():
  weights = {'desk': 1, 'flight': 1}
  options = {'flight': {'instructions': 'none', 'legs': 1}}
  tools = set()
  for seed in range(8):
    data = mix.generate(seed, weights=weights, options=options)
    env = envs.make('mix', weights=weights, options=options)
    seen = env.reset(types.Task('mix', 'test', seed, data)).messages[0].content
    tools.add((data['env'], env.tools[0]['function']['name'], env.system[:8]))
    assert data['env'] == 'desk' or seen.count('>') == 1
    env.close()
  assert tools == {
    ('desk', 'lookup', 'You serv'),
    ('flight', 'search', 'You book'),
  }


def test_demonstrations_are_the_worlds_own():
  for seed in range(6):
    data = mix.generate(seed, weights={'desk': 1, 'sokoban': 1})
    task = types.Task('mix', 'test', seed, data)
    plain = envs.ENVS[data['env']].demonstrate(mix.inner(task), seed=seed)
    assert mix.MixEnv.demonstrate(task, seed=seed) == plain
    rates = {'desk': dict.fromkeys(('skip_email', 'skip_reason'), 0.0)}
    mix.MixEnv.demonstrate(task, seed=seed, rates=rates)
    oracle = mix.MixEnv.oracle(task)
    assert scripted.play(mix.MixEnv(), task, oracle)[1] == 1.0


@pytest.mark.parametrize(
  'options, words',
  [
    ({'weights': {}}, 'give names with weights'),
    ({'weights': {'desk': 0}}, 'above 0'),
    ({'weights': {'dsek': 1}}, 'dsek'),
    ({'weights': {'mix': 1}}, 'does not mix itself'),
    ({'weights': {'desk': 1}, 'options': {'sql': {}}}, 'named: desk'),
    ({'weights': {'desk': 1}, 'options': {'desk': {'a': 1}}}, 'no option a'),
  ],
)
def test_what_cannot_be_mixed_is_refused(options, words):
  with pytest.raises(ValueError, match=words):
    mix.generate(0, **options)
  if options['weights']:
    with pytest.raises(ValueError, match=words):
      envs.make('mix', **options)


def test_the_order_of_weights_means_nothing():
  names = ('sokoban', 'frozen_lake')
  one, other = ({n: 1.0 for n in order} for order in (names, names[::-1]))
  drawn = [
    [mix.generate(seed, weights=weights)['env'] for seed in range(20)]
    for weights in (one, other)
  ]
  assert drawn[0] == drawn[1] and len(set(drawn[0])) == 2


def test_tools_of_a_task_are_those_of_its_world():
  options = {'weights': {'sql': 1, 'desk': 1}}
  seen = set()
  for seed in range(8):
    data = mix.generate(seed, **options)
    task = types.Task('mix', 'test', seed, data)
    env = envs.make('mix', **options)
    env.reset(task)
    assert mix.MixEnv.task_tools(task, **options) == env.tools
    seen.add(env.tools[0]['function']['name'])
    env.close()
  assert len(seen) == 2


def test_its_agents_are_those_of_the_worlds():
  for seed in range(4):
    data = mix.generate(seed, weights={'desk': 1, 'sokoban': 1})
    task = types.Task('mix', 'test', seed, data)
    env_class = envs.ENVS[data['env']]
    for given, rates in (
      ({}, env_class.rates),
      ({data['env']: {'malformed': 1.0}}, {**env_class.rates, 'malformed': 1}),
    ):
      own = env_class.agent(mix.inner(task), seed=7, rates=rates)
      plain = scripted.play(env_class(), mix.inner(task), own)
      mixed = mix.MixEnv.agent(task, seed=7, rates=given)
      weights = {'desk': 1, 'sokoban': 1}
      played = scripted.play(mix.MixEnv(weights=weights), task, mixed)
      assert played[1] == plain[1]
      assert [m.content for m in played[0]] == [m.content for m in plain[0]]
