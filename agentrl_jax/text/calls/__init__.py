"""In which notations can a model write a call? One module each.

A notation is five functions of a style: `find` says where calls begin in a
text, `read` reads all of them from there, `render` writes them, `usage` tells
in a line how one looks, `faulty` gives texts with the usual faults.
"""

from agentrl_jax.text.calls import hermes, llama, python, react, xml

CALLS = {
  'hermes': hermes,  # JSON between tool_call tags: Hermes, Qwen2.5, Qwen3
  'xml': xml,  # function and parameter tags: Qwen3-Coder
  'llama': llama,  # bare JSON: Llama 3
  'python': python,  # a list of Python calls: Llama 4, LFM2
  'react': react,  # Action and Action Input lines: ReAct
}
