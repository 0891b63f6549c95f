"""Locks: names and layouts of the Hugging Face format, both directions."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from agentrl_jax.models import families, hf, params, transformer
from agentrl_jax.models.config import ModelConfig

CONFIG = ModelConfig(
  num_layers=2,
  d_model=12,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  d_ff=20,
  vocab_size=11,
  rope_theta=5e5,
  norm_epsilon=1e-5,
)
VARIANTS = {
  'untied': CONFIG,
  'tied': dataclasses.replace(CONFIG, tie_embeddings=True),
  'llama': dataclasses.replace(CONFIG, qk_norm=False),
}
# Written by other rules: biases, experts, further norms.
MORE = {
  'qwen2': dataclasses.replace(CONFIG, qk_norm=False, qkv_bias=True),
  'experts': dataclasses.replace(
    CONFIG, num_experts=3, experts_per_token=2, d_expert=5
  ),
  'gemma3': dataclasses.replace(
    CONFIG,
    activation='gelu_tanh',
    post_norms=True,
    centered_norms=True,
    scale_embeddings=True,
    query_scalar=8.0,
    sliding_window=3,
    sliding_layers=(True, False),
    rope_local_theta=1e4,
  ),
}


def random_params(config, seed=0):
  """Norms are random too: weights of one would hide a swap."""
  draw = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: draw.normal(0.5, 0.4, x.shape).astype(np.float32),
    params.abstract(config),
  )


def assert_same(left, right):
  assert jax.tree.structure(left) == jax.tree.structure(right)
  for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)):
    np.testing.assert_array_equal(a, b)


def edit_config(directory, **fields):
  path = directory / 'config.json'
  path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize('variant', {**VARIANTS, **MORE})
@pytest.mark.parametrize('shard_bytes', (4 << 30, 3000))
def test_save_and_load_give_the_weights_back(variant, shard_bytes, tmp_path):
  config = {**VARIANTS, **MORE}[variant]
  made = random_params(config)
  hf.save(tmp_path, config, made, shard_bytes=shard_bytes)
  assert len(list(tmp_path.glob('*.safetensors'))) == (
    1 if shard_bytes > 3000 else len(set(files_of(tmp_path).values()))
  )
  loaded_config, loaded = hf.load(tmp_path)
  assert loaded_config == config
  assert_same(loaded, made)
  assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(loaded))


def files_of(directory):
  index = directory / 'model.safetensors.index.json'
  return json.loads(index.read_text())['weight_map']


def test_layout_by_hand(tmp_path):
  made = random_params(CONFIG)
  hf.save(tmp_path, CONFIG, made)
  there = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  layers = made['layers']
  # Row h*C + c of q_proj is what head h's component c reads from the input.
  q = there['model.layers.1.self_attn.q_proj.weight']
  assert q.shape == (24, 12)
  np.testing.assert_array_equal(q[3 * 6 + 5], layers['q'][1, :, 3, 5])
  # Column h*C + c of o_proj is what it writes to the output.
  o = there['model.layers.0.self_attn.o_proj.weight']
  np.testing.assert_array_equal(o[:, 2 * 6 + 1], layers['o'][0, 2, 1])
  down = there['model.layers.0.mlp.down_proj.weight']
  np.testing.assert_array_equal(down, layers['down'][0].T)
  np.testing.assert_array_equal(there['lm_head.weight'], made['head'].T)
  np.testing.assert_array_equal(
    there['model.layers.1.post_attention_layernorm.weight'],
    layers['mlp_norm'][1],
  )
  assert len(there) == 3 + 2 * 11


def test_config_fields(tmp_path):
  hf.save(tmp_path, CONFIG, random_params(CONFIG), fields={'eos_token_id': 1})
  fields = json.loads((tmp_path / 'config.json').read_text())
  expected = {
    'model_type': 'qwen3',
    'architectures': ['Qwen3ForCausalLM'],
    'hidden_size': 12,
    'num_key_value_heads': 2,
    'head_dim': 6,
    'rms_norm_eps': 1e-5,
    'tie_word_embeddings': False,
    'dtype': 'float32',
    'eos_token_id': 1,
  }
  assert {key: fields[key] for key in expected} == expected
  assert fields['rope_parameters']['rope_theta'] == 5e5


def test_transformers_reads_the_config(tmp_path):
  transformers = pytest.importorskip('transformers')
  for config in (*VARIANTS.values(), *MORE.values()):
    hf.save(tmp_path, config, random_params(config))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert theirs.head_dim == 6
    fields = theirs.to_dict()
    assert hf.read_config(fields) == config


def test_dtype_is_kept_or_converted(tmp_path):
  made = jax.tree.map(
    lambda x: x.astype(ml_dtypes.bfloat16), random_params(CONFIG)
  )
  hf.save(tmp_path, CONFIG, made)
  config, loaded = hf.load(tmp_path)
  assert config.dtype == 'bfloat16'
  assert_same(loaded, made)
  config, loaded = hf.load(tmp_path, dtype='float32')
  assert config.dtype == 'float32'
  assert_same(loaded, jax.tree.map(lambda x: x.astype(np.float32), made))


def test_shardings_are_followed(tmp_path):
  made = random_params(CONFIG)
  hf.save(tmp_path, CONFIG, made)
  mesh = jax.make_mesh((1,), ('fsdp',))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  shardings = jax.tree.map(lambda _: sharding, made)
  _, loaded = hf.load(tmp_path, shardings=shardings)
  assert {x.sharding for x in jax.tree.leaves(loaded)} == {sharding}
  assert_same(loaded, made)


def test_a_config_that_is_not_supported_is_named(tmp_path):
  hf.save(tmp_path, CONFIG, random_params(CONFIG))
  edit_config(tmp_path, attention_bias=True)
  with pytest.raises(ValueError, match='config.json: attention_bias'):
    hf.load(tmp_path)


class Reads:
  """Stands for a model's files; remembers which tensors were opened."""

  def __init__(self, directory, monkeypatch):
    self.names = []
    open_ = hf._Files.open

    def opened(files, name):
      self.names.append(name)
      return open_(files, name)

    monkeypatch.setattr(hf._Files, 'open', opened)
    self.files = hf._files(directory)


@pytest.mark.parametrize('variant', ['untied', 'qwen2', 'experts'])
def test_a_device_reads_its_part_only(variant, tmp_path, monkeypatch):
  config = {**VARIANTS, **MORE}[variant]
  made = random_params(config)
  hf.save(tmp_path, config, made)
  reads = Reads(tmp_path, monkeypatch)
  draw = np.random.default_rng(2)
  for keys, weight, name in families.weights(config):
    whole = hf._at(made, keys)
    stack = (1,) if name.stacks else ()
    shape = weight.shape[len(stack) :]
    cuts = (np.sort(draw.choice(n + 1, 2, replace=False)) for n in shape)
    index = tuple(slice(int(a), int(b)) for a, b in cuts)
    part = hf._part(reads.files, name, stack, shape, index, dtype=whole.dtype)
    np.testing.assert_array_equal(part, whole[stack][index])
    if name.stacks == 2:  # of the experts only those that are asked for
      asked = range(index[0].start, index[0].stop)
      read = reads.names[-len(asked) :]
      assert read == [name.path.format(1, i) for i in asked]


def test_a_stack_is_assembled_layer_by_layer():
  """Host memory holds one layer: parts are asked for one after the other."""
  value = np.arange(24.0, dtype=np.float32).reshape(3, 4, 2)
  asked = []

  def read(stack, shape, index):
    asked.append((stack, shape))
    return value[stack][index]

  mesh = jax.make_mesh((1,), ('fsdp',))
  spec = jax.sharding.PartitionSpec(None, 'fsdp')
  sharding = jax.sharding.NamedSharding(mesh, spec)
  for placed in (None, sharding):
    made = hf.assemble(
      read, value.shape, np.float32, stacked=True, sharding=placed
    )
    np.testing.assert_array_equal(made, value)
    assert placed is None or made.sharding == placed
  assert asked == [((i,), (4, 2)) for i in (0, 1, 2)] * 2
  split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('fsdp'))
  with pytest.raises(ValueError, match='layer axis'):
    hf.assemble(read, value.shape, np.float32, stacked=True, sharding=split)


def test_tensors_of_another_type_are_refused(tmp_path):
  hf.save(tmp_path, CONFIG, random_params(CONFIG))
  path = tmp_path / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  name = 'model.layers.1.mlp.up_proj.weight'
  tensors[name] = tensors[name].astype(np.int8)
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(ValueError, match=f'{name} is I8'):
    hf.load(tmp_path)


def test_another_type_is_written_on_demand(tmp_path):
  made = random_params(CONFIG)
  hf.save(tmp_path, CONFIG, made, dtype='bfloat16')
  config, loaded = hf.load(tmp_path)
  assert config.dtype == 'bfloat16'
  assert_same(
    loaded, jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16), made)
  )


def test_adapters_are_not_dropped_silently(tmp_path):
  made = random_params(CONFIG)
  layers = {**made['layers'], 'lora': {'q': {}}}
  with pytest.raises(ValueError, match='lora.merge'):
    hf.save(tmp_path, CONFIG, {**made, 'layers': layers})
  assert not list(tmp_path.iterdir())


def test_missing_extra_and_misshapen_tensors_are_named(tmp_path):
  made = random_params(CONFIG)
  hf.save(tmp_path, CONFIG, made)
  path = tmp_path / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  norm = tensors.pop('model.norm.weight')
  bias = 'model.layers.0.self_attn.q_proj.bias'
  safetensors.numpy.save_file({**tensors, bias: norm}, path)
  with pytest.raises(ValueError, match=r'model\.norm.*q_proj\.bias'):
    hf.load(tmp_path)
  tensors['model.norm.weight'] = norm[:-1].copy()
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(ValueError, match=r'model\.norm\.weight is \(11,\)'):
    hf.load(tmp_path)
  with pytest.raises(ValueError, match='layers.*gate'):
    layers = {k: v for k, v in made['layers'].items() if k != 'gate'}
    hf.save(tmp_path, CONFIG, {**made, 'layers': layers})
  with pytest.raises(ValueError, match='no config.json'):
    hf.load(tmp_path / 'nowhere')


def published_forward(there, config, tokens):
  """Qwen3 as published, for one sequence: plain NumPy on the files' tensors.

  Linear layers are x @ W.T, heads are cut from the last axis, rotary pairs are
  halves, key-value heads are repeated in place.
  """

  def norm(x, name):
    scale = np.sqrt((x * x).mean(-1, keepdims=True) + config.norm_epsilon)
    return x / scale * there[name]

  def linear(x, name):
    return x @ there[name].T

  def rotate(x):
    half = config.head_dim // 2
    steps = np.arange(half) * 2 / config.head_dim
    angles = np.outer(np.arange(len(tokens)), config.rope_theta**-steps)
    cos, sin = (np.tile(f(angles), 2)[:, None] for f in (np.cos, np.sin))
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin

  there = {name: value.astype(np.float64) for name, value in there.items()}
  x = there['model.embed_tokens.weight'][tokens]
  for i in range(config.num_layers):
    block = f'model.layers.{i}.'
    y = norm(x, block + 'input_layernorm.weight')
    heads = {}
    for name in 'qkv':
      z = linear(y, f'{block}self_attn.{name}_proj.weight')
      z = z.reshape(len(tokens), -1, config.head_dim)
      if name != 'v':
        if config.qk_norm:
          z = norm(z, f'{block}self_attn.{name}_norm.weight')
        z = rotate(z)
      if name != 'q':
        z = z.repeat(config.num_heads // config.num_kv_heads, axis=1)
      heads[name] = z
    scores = np.einsum('thc,shc->hts', heads['q'], heads['k'])
    scores /= np.sqrt(config.head_dim)
    future = np.triu(np.ones((len(tokens), len(tokens)), bool), 1)
    scores = np.where(future, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum('hts,shc->thc', weights, heads['v'])
    out = out.reshape(len(tokens), -1)
    x = x + linear(out, block + 'self_attn.o_proj.weight')
    y = norm(x, block + 'post_attention_layernorm.weight')
    gate = linear(y, block + 'mlp.gate_proj.weight')
    up = linear(y, block + 'mlp.up_proj.weight')
    y = gate / (1 + np.exp(-gate)) * up
    x = x + linear(y, block + 'mlp.down_proj.weight')
  x = norm(x, 'model.norm.weight')
  tied = config.tie_embeddings
  head = 'model.embed_tokens.weight' if tied else 'lm_head.weight'
  return linear(x, head)


@pytest.mark.parametrize('variant', VARIANTS)
def test_logits_are_those_of_the_published_model(variant, tmp_path):
  config = VARIANTS[variant]
  tokens = np.random.default_rng(1).integers(0, 11, 9)
  hf.save(tmp_path, config, random_params(config))
  there = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  expected = published_forward(there, config, tokens)
  loaded_config, loaded = hf.load(tmp_path)
  with jax.numpy_rank_promotion('allow'):
    ours, _ = transformer.forward(loaded_config, loaded, tokens[None])
  np.testing.assert_allclose(ours[0], expected, atol=2e-4, rtol=1e-4)
