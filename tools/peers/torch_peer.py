"""The workloads of `tools/bench.py` by transformers, TRL and CTranslate2.

  python3.11 -m venv DIR
  DIR/bin/pip install torch transformers trl datasets accelerate ctranslate2
  DIR/bin/python tools/peers/torch_peer.py hf_sample hf_train hf_logprobs \\
    ct2_sample ct2_sample_int8 trl_grpo

CTranslate2 has no Qwen3: it decodes a Llama of the same size. It keeps its
model in a temporary directory.
"""

import os
import sys
import tempfile
import time

import numpy as np
import torch
import transformers
import workloads as w


def policy(family: str = 'Qwen3'):
  """Returns a random model of the family."""
  torch.manual_seed(0)
  config = getattr(transformers, f'{family}Config')(
    vocab_size=w.VOCAB,
    hidden_size=w.WIDTH,
    intermediate_size=w.FFW,
    num_hidden_layers=w.LAYERS,
    num_attention_heads=w.HEADS,
    num_key_value_heads=w.KV_HEADS,
    head_dim=w.HEAD_DIM,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    attn_implementation='sdpa',
  )
  return getattr(transformers, f'{family}ForCausalLM')(config).float()


def hf_sample() -> None:
  """32 prompts, 128 new tokens each; no log-probs."""
  model = policy().eval()
  prompts = torch.as_tensor(w.draw(0, w.BATCH, w.PROMPT), dtype=torch.long)

  def work():
    with torch.inference_mode():
      model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=True,
        top_k=0,
        top_p=1.0,
        max_new_tokens=w.NEW,
        min_new_tokens=w.NEW,
      )

  w.measure('hf_sample', w.BATCH * w.NEW, work)


def scores(model, ids):
  """Log-probs of the completions [32, 128]."""
  logits = model(input_ids=ids, logits_to_keep=w.NEW + 1).logits[:, :-1]
  every = torch.log_softmax(logits.float(), -1)
  return every.gather(-1, ids[:, w.PROMPT :, None])[..., 0]


def sequences():
  """32 sequences of 256 tokens."""
  ids = w.draw(1, w.BATCH, w.PROMPT + w.NEW)
  return torch.as_tensor(ids, dtype=torch.long)


def hf_train() -> None:
  """A GRPO update with a KL term."""
  model, ids = policy().train(), sequences()
  optimizer = torch.optim.AdamW(model.parameters(), lr=w.RATE)
  draws = np.random.default_rng(1)
  advantages = torch.as_tensor(draws.normal(size=(w.BATCH, 1))).float()
  guess = torch.full((w.BATCH, w.NEW), -float(np.log(w.VOCAB)))

  def work():
    optimizer.zero_grad(set_to_none=True)
    now = scores(model, ids)
    ratio = torch.exp(now - guess)
    kept = ratio.clamp(1 - w.CLIP, 1 + w.CLIP)
    loss = -torch.minimum(ratio * advantages, kept * advantages)
    kl = torch.exp(guess - now) - (guess - now) - 1
    (loss + w.KL * kl).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

  w.measure('hf_train', w.BATCH * (w.PROMPT + w.NEW), work)


def hf_logprobs() -> None:
  """Log-probs of the sequences."""
  model, ids = policy().eval(), sequences()

  def work():
    with torch.no_grad():
      scores(model, ids)

  w.measure('hf_logprobs', w.BATCH * (w.PROMPT + w.NEW), work)


def tokenizer():
  """Returns one whose words are t4, t5, ..."""
  from tokenizers import Tokenizer, models, pre_tokenizers

  names = {'<pad>': 0, '<s>': 1, '</s>': 2, '<unk>': 3}
  names |= {f't{i}': i for i in range(w.RESERVED, w.VOCAB)}
  made = Tokenizer(models.WordLevel(names, unk_token='<unk>'))
  made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=made,
    unk_token='<unk>',
    bos_token='<s>',
    eos_token='</s>',
    pad_token='<pad>',
    padding_side='left',
  )


def _ct2(kind: str, name: str) -> None:
  import ctranslate2
  from ctranslate2.converters import TransformersConverter

  with tempfile.TemporaryDirectory() as folder:
    policy('Llama').save_pretrained(f'{folder}/hf')
    tokenizer().save_pretrained(f'{folder}/hf')
    TransformersConverter(f'{folder}/hf').convert(f'{folder}/ct2')
    generator = ctranslate2.Generator(
      f'{folder}/ct2',
      compute_type=kind,
      intra_threads=len(os.sched_getaffinity(0)),
    )
    prompts = [[f't{i}' for i in row] for row in w.draw(0, w.BATCH, w.PROMPT)]
    w.measure(
      name,
      w.BATCH * w.NEW,
      lambda: generator.generate_batch(
        prompts,
        max_length=w.NEW,
        min_length=w.NEW,
        sampling_topk=0,
        include_prompt_in_result=False,
        max_batch_size=w.BATCH,
      ),
    )


def ct2_sample() -> None:
  """32 prompts, 128 new tokens each, float32."""
  _ct2('float32', 'ct2_sample')


def ct2_sample_int8() -> None:
  """The same with 8-bit weights."""
  _ct2('int8', 'ct2_sample_int8')


def trl_grpo() -> None:
  """Whole steps: 4 prompts x 8 samples, reference, update."""
  from datasets import Dataset
  from trl import GRPOConfig, GRPOTrainer

  steps, ends = 2 + int(os.environ.get('BENCH_REPEATS', '3')), []

  class Clock(transformers.TrainerCallback):
    """Notes when a step ends."""

    def on_step_end(self, *_, **__):
      ends.append((time.perf_counter(), time.process_time()))

  prompts = w.draw(0, 4 * (steps + 2), w.PROMPT)
  data = [{'prompt': ' '.join(f't{i}' for i in row)} for row in prompts]
  with tempfile.TemporaryDirectory() as folder:
    policy().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    trainer = GRPOTrainer(
      model=folder,
      reward_funcs=lambda completions, **_: [
        float(len(set(text.split()))) for text in completions
      ],
      args=GRPOConfig(
        output_dir=f'{folder}/out',
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=w.BATCH,
        num_generations=w.GROUP,
        max_completion_length=w.NEW,
        generation_kwargs={'min_new_tokens': w.NEW},
        max_steps=steps,
        beta=w.KL,
        learning_rate=w.RATE,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy='no',
        disable_tqdm=True,
      ),
      train_dataset=Dataset.from_list(data),
      processing_class=tokenizer(),
      callbacks=[Clock()],
    )
    trainer.train()
  pairs = list(zip(ends[:-1], ends[1:], strict=True))
  w.tell(
    'trl_grpo',
    w.BATCH * w.NEW,
    [b[0] - a[0] for a, b in pairs],
    [b[1] - a[1] for a, b in pairs],
  )


if __name__ == '__main__':
  for name in sys.argv[1:]:
    globals()[name]()
