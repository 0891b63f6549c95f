"""Where do commands run that nobody vouches for? docs/sandbox.md says it all.

`run(command, files=...)` gives a fresh world with these files, and returns what
was written and the files that were left: a function of text, without traces.
"""

from agentrl_jax.envs.sandbox.client import (
  BACKENDS,
  Choice,
  ContainmentWarning,
  SandboxError,
  choose,
  close,
  run,
  run_python,
  trial,
)
from agentrl_jax.envs.sandbox.records import Limits, Result

__all__ = (
  'BACKENDS',
  'Choice',
  'ContainmentWarning',
  'Limits',
  'Result',
  'SandboxError',
  'choose',
  'close',
  'run',
  'run_python',
  'trial',
)
