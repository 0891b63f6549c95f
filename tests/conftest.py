"""What every test gets: one CPU device, a compilation cache, strict shapes."""

import os
import pathlib
import sys
import tempfile

# Before jax is imported by anybody. A run on an accelerator says so itself.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
os.environ.setdefault('TQDM_DISABLE', '1')
os.environ.setdefault('MPLBACKEND', 'agg')
# Programs compiled by earlier runs of the tests, and by their subprocesses.
_CACHE = pathlib.Path(tempfile.gettempdir(), f'agentrl_tests_{os.getuid()}')
os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(_CACHE / 'jax'))
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')

import pytest  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # trainer_fakes


@pytest.fixture(autouse=True)
def _strict_shapes():
  """[B] + [B, T] is an error, not a broadcast, wherever jax is loaded."""
  if 'jax' not in sys.modules:
    yield
    return
  import jax

  with jax.numpy_rank_promotion('raise'):
    yield


@pytest.fixture(autouse=True, scope='module')
def _few_programs():
  """Drops compiled programs before the kernel's limit on mappings is reached.

  Each takes several of the 65,530 that a Linux process may have; beyond them
  XLA dies by SIGSEGV or SIGABRT. They come back from the cache on disk.
  """
  yield
  maps = pathlib.Path('/proc/self/maps')
  mappings = maps.read_bytes().count(b'\n') if maps.exists() else 0
  if 'jax' in sys.modules and mappings > 20_000:
    import jax

    jax.clear_caches()


@pytest.fixture(scope='session')
def draw_params():
  """f(config, seed=0) -> weights with the spread of `params.init`, by NumPy.

  Nothing is compiled, and no test hangs on how JAX draws.
  """
  import jax
  import numpy as np

  from agentrl_jax.models import params

  def draw(config, seed=0):
    draws = np.random.default_rng(seed)

    def one(weight):
      unit = draws.normal(size=weight.shape) if weight.std else 1.0
      return np.asarray(
        np.broadcast_to(unit * (weight.std or 1.0), weight.shape), np.float32
      )

    def is_weight(x):
      return isinstance(x, params.Weight)

    tree = jax.tree.map(one, params.describe(config), is_leaf=is_weight)
    return jax.tree.map(jax.numpy.asarray, tree)

  return draw
