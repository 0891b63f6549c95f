"""The small faults that `tests/mutations.py` plants, one at a time."""

# file in the package -> (tests that should notice, [(text, fault), ...])
TABLE = {
  'advantages/returns.py': (
    ['advantages/returns_test.py'],
    [
      ('jnp.where(counts, reward + gamma * later, later)', 'reward + later'),
      ('later = jnp.where(counts, reward', 'later = jnp.where(True, reward'),
      ('delta = reward + gamma * next_value', 'delta = reward + next_value'),
      ('delta + gamma * lam * next_advantage', 'delta + gamma * lam'),
      ('jnp.where(counts, value, next_value),', 'value,'),
      ('jnp.where(mask, advantages + values, 0.0)', 'advantages'),
      ('continuation_returns) & turn_mask[..., None]', 'continuation_returns)'),
      ('jnp.where(is_known, value, earned), earned', 'earned, earned'),
      ('jnp.where(is_known, difference, current)', 'difference'),
      ('jnp.where(counts, reward + gamma * ahead, ahead)', 'reward + ahead'),
    ],
  ),
  'advantages/grouped.py': (
    ['advantages/grouped_test.py', 'advantages/conformance_test.py'],
    [
      ('std > relative_floor * largest', 'std > relative_floor'),
      ('jnp.maximum(count - ddof, 1)', 'jnp.maximum(count, 1)'),
      ('stats.std + epsilon if', 'stats.std * epsilon if'),
      ('stats.count == 1, values', 'stats.count <= 1, values'),
      ('stats.varies, stats.count - 1, 1.0', 'stats.varies, stats.count, 1.0'),
      ("if baseline == 'mean':", "if baseline != 'mean':"),
    ],
  ),
  'advantages/anchored.py': (
    ['advantages/anchored_test.py'],
    [
      ('groups.ravel(), anchor_ids.ravel()', 'anchor_ids.ravel()'),
      ('return total - own', 'return total'),
      ('counts = counts & has_peer', 'counts = counts | has_peer'),
      (
        '(totals[:, None] - penalties).ravel()',
        '(totals[:, None] + penalties).ravel()',
      ),
      ('is_real = jnp.any(turn_mask', 'is_real = jnp.all(turn_mask'),
      ('alone = (stats.count == 1)', 'alone = (stats.count >= 1)'),
      ('turn_returns -= jnp.where', 'turn_returns += jnp.where'),
      ('+ anchor_weight * anchor_part', '+ anchor_part'),
    ],
  ),
  'advantages/history.py': (
    ['advantages/history_test.py'],
    [
      ('(levels + offset) ** alpha', '(levels + offset) * alpha'),
      (
        'size.reshape(turn_mask.shape) > 1',
        'size.reshape(turn_mask.shape) > 0',
      ),
      ('else base_weight * base + averaged', 'else base + averaged'),
      ('jnp.where(a != 0, w, 0)', 'jnp.where(a > 0, w, 0)'),
      ('advantages.append(base)', 'advantages.append(0 * base)'),
    ],
  ),
  'advantages/baselines.py': (
    ['advantages/baselines_test.py'],
    [
      ('(lengths * stats.centred, lengths)', '(stats.centred, lengths)'),
      ('episode_returns - stats.centred, 1)', 'stats.std, 1)'),
      ('count(is_best) == 1', 'count(is_best) >= 1'),
      ('gather(lowest, ids, mask) >= 0', 'gather(lowest, ids, mask) >= -9'),
    ],
  ),
  'advantages/whitened.py': (
    ['advantages/whitened_test.py'],
    [
      ('mask.shape), counts)', 'mask.shape), mask)'),
      ('whiten(turn_returns, turn_mask)', 'whiten(turn_rewards, turn_mask)'),
      ('jnp.sqrt(variance + epsilon)', '(variance + epsilon)'),
      ('jnp.maximum(count - ddof, 1)', 'jnp.maximum(count, 1)'),
    ],
  ),
  'advantages/calibrated.py': (
    ['advantages/calibrated_test.py'],
    [
      ('own.count + shrinkage, 1)', 'own.count, 1)'),
      ('stats.varies, between + within, 1)', 'stats.varies, between, 1)'),
      ('(action_ids >= 0)', '(action_ids >= -1)'),
    ],
  ),
  'advantages/graph.py': (
    ['advantages/graph_test.py'],
    [
      ('segment_min(1 + after(distances)', 'segment_min(after(distances)'),
      ('result, furthest + 1)', 'result, furthest)'),
      ('outcomes > success_threshold', 'outcomes >= success_threshold'),
    ],
  ),
  'advantages/controls.py': (
    ['advantages/controls_test.py'],
    [
      ('jnp.cumsum(turn_mask, axis=-1) - 1', 'jnp.cumsum(turn_mask, axis=-1)'),
      ('jnp.lexsort((noise, groups))', 'jnp.lexsort((groups, noise))'),
    ],
  ),
  'advantages/broadcast.py': (
    ['advantages/broadcast_test.py'],
    [
      (
        'has_turn = mask & (row_trajectory >= 0) & (row_turn >= 0)',
        'has_turn = mask & (row_trajectory >= 0)',
      ),
      ("mode='fill', fill_value=jnp.nan", "mode='clip'"),
      (
        '(positions.ravel(), row_turn.ravel(), t',
        '(row_turn.ravel(), positions.ravel(), t',
      ),
      ('jnp.where(counts, row_trajectory, num_trajectories)', 'row_trajectory'),
    ],
  ),
  'advantages/estimators.py': (
    ['advantages/estimators_test.py'],
    [
      (
        'jnp.where(counts[:, None], turns.turn_penalties, 0)',
        'turns.turn_penalties',
      ),
      ('counts = mask & (group_ids >= 0)[:, None]', 'counts = mask'),
      ("{'scale': 'none'} | options", "{'scale': 'std'} | options"),
    ],
  ),
  'advantages/measures.py': (
    ['advantages/measures_test.py'],
    [
      ('jnp.where(varies[:, None], 0, size_of_a)', 'size_of_a'),
      ('1 / jnp.maximum(group_size, 1)', '1.0'),
      ('(keys >= 0) & (action_ids >= 0)', '(keys >= 0)'),
    ],
  ),
  'losses/aggregate.py': (
    ['losses/aggregate_test.py'],
    [
      ("num if weighting == 'sequence_token_sum' else", ''),
      ('1 / jnp.maximum(jnp.sum(mask), 1)', '1 / mask.size'),
      ('ids, bound = trajectory_ids', 'ids, bound = sequence_ids'),
      ('jnp.where(counts, token_values, 0)', 'token_values'),
    ],
  ),
  'losses/clamp.py': (
    ['losses/clamp_test.py'],
    [
      ('MAX_LOG_RATIO = 20.0', 'MAX_LOG_RATIO = 200.0'),
      ('jnp.where(mask, other_logprobs, 0)', 'other_logprobs'),
    ],
  ),
  'losses/policy.py': (
    ['losses/policy_test.py'],
    [
      ('jnp.maximum(-advantages * ratio', 'jnp.minimum(-advantages * ratio'),
      (
        'jnp.clip(ratio, 1 - low, 1 + high)',
        'jnp.clip(ratio, 1 - low, 1 + low)',
      ),
      ('loss = jnp.where(advantages < 0, bounded, loss)', 'loss = bounded'),
      ('return jax.lax.stop_gradient(safe)', 'return safe'),
      ('own = safe - jax.lax.stop_gradient(safe)', 'own = safe - safe'),
      ('return sums / jnp.maximum(lengths, 1)', 'return sums'),
      ('sign * jnp.minimum(sign * log_ratio, sign * bounded)', 'bounded'),
      ('jnp.clip(ratio, 1 - clip_low, 1 + clip_high)', 'ratio'),
      ('jnp.minimum(ratio, max_weight)', 'jnp.maximum(ratio, max_weight)'),
      ('jax.lax.stop_gradient(weight) *', 'weight *'),
      ('tau_positive, tau_negative)', 'tau_negative, tau_positive)'),
    ],
  ),
  'losses/kl.py': (
    ['losses/kl_test.py'],
    [
      ('jnp.clip(d, -MAX_LOG_RATIO, MAX_LOG_RATIO)', 'd'),
      ('0.5 * jnp.square(d)', 'jnp.square(d)'),
      ('jax.lax.stop_gradient(k3(d)) +', 'k3(d) +'),
      ('jnp.clip(value, -maximum, maximum)', 'jnp.clip(value, 0, maximum)'),
    ],
  ),
  'losses/value.py': (
    ['losses/value_test.py'],
    [
      ('jnp.maximum(loss, jnp.square', 'jnp.minimum(loss, jnp.square'),
      ('jax.lax.stop_gradient(safe(returns))', 'safe(returns)'),
    ],
  ),
  'losses/correction.py': (
    ['losses/correction_test.py'],
    [
      ('jnp.minimum(jnp.exp(log_ratio), cap)', 'jnp.exp(log_ratio)'),
      ('(ratio >= low) & (ratio <= high)', '(ratio >= low)'),
      ('jnp.exp(sums / jnp.maximum(lengths, 1))', 'jnp.exp(sums)'),
      (
        'stop_gradient(log_ratio)) < threshold',
        'stop_gradient(log_ratio)) > 1',
      ),
      ('alpha = (age - 1) / age', 'alpha = age / (age + 1)'),
      ('num_bins - 1)', 'num_bins)'),
    ],
  ),
  'losses/reweighting.py': (
    ['losses/reweighting_test.py'],
    [
      ('jnp.where(kept, weights, 0.0)', 'weights'),
      ('if level not in ids:', 'if level in ids:'),
      ('kept &= out', 'kept |= out'),
      ('weights *= out', 'weights = out'),
      ('ids[level], mask, **options)', "ids['sequence'], mask, **options)"),
      ('sequence_ids=ids.get(level)', "sequence_ids=ids['sequence']"),
    ],
  ),
  'losses/likelihood.py': (
    ['losses/likelihood_test.py'],
    [
      (' / temperature\n  chosen', '\n  chosen'),
      ('jax.nn.logsumexp(scaled, axis=-1) - mean', '-mean'),
      ('jnp.where(mask[..., None], hidden, 0)', 'hidden'),
      ('(most + chunk - 1) // chunk', 'most // chunk'),
      ('by_logprob + by_entropy * surprise', 'by_logprob'),
      ('jnp.argsort(order, axis=1)', 'order'),
    ],
  ),
  'learner/objective.py': (
    ['learner/objective_test.py'],
    [
      ('targets = batch.tokens[:, 1:]', 'targets = batch.tokens[:, :-1]'),
      ('front = [(0, 0), (1, 0)]', 'front = [(0, 0), (0, 1)]'),
      ('segment_ids=batch.segment_ids,', 'segment_ids=None,'),
      ('- self.entropy_coef * bonus', '+ self.entropy_coef * bonus'),
      ('jnp.maximum(a.maxima[key], b.maxima[key])', 'b.maxima[key]'),
      ('in (batch.row_turn, segments):', 'in (batch.row_turn,):'),
    ],
  ),
  'rollout/collate.py': (
    ['rollout/collate_test.py'],
    [
      ('if not trajectory.stop_reason.trainable:', 'if False:'),
      ('np.where(mask, anchor_ids, -1)', 'anchor_ids'),
      ('= context.sampled_mask', '= True'),
      ('ids - np.maximum(ids[:, :1], 1) + 1', 'ids'),
      ('crosses[:, piece - 1 :: piece]', 'crosses[:, ::piece]'),
      ('if turn.context == c:', 'if True:'),
      (
        'batch.segment_ids + rows * segments',
        'batch.segment_ids + 0 * segments',
      ),
      (
        "if not turn.info.get('valid', True):",
        "if turn.info.get('valid', True):",
      ),
    ],
  ),
  'rollout/selection.py': (
    ['rollout/selection_test.py'],
    [
      ('spread > floor * max(', 'spread > 0 * max('),
      ('np.std(returns, ddof=1)', 'np.ptp(returns)'),
      ('if t.stop_reason.trainable and t.turns', 'if t.turns'),
      ('if good\n    and t.turns', 'if t.turns'),
      ('generator.permutation(len(indices))', 'range(len(indices))'),
      ("_OVERLONG if overlong == 'drop' else ()", '()'),
      ('if good]\n  ranked +=', 'if True]\n  ranked +='),
    ],
  ),
  'rollout/credit.py': (
    ['rollout/credit_test.py'],
    [
      ('if not trajectory.stop_reason.trainable:', 'if False:'),
      (
        'np.lexsort((batch.row_turn.ravel()[flat], owner))',
        'np.argsort(owner)',
      ),
      ('np.pad(row_values, [(0, 0), (1, 0)])[:, :-1]', 'row_values'),
      ('np.where(cut & (lengths > 0), last, 0)', 'last'),
      ('((turn < s) & has', '((turn <= s) & has'),
      ('np.maximum(has.sum(-1) - 1, 0)', 'has.sum(-1)'),
      ('self._kl_coef * apart', '-self._kl_coef * apart'),
      (
        'np.add.at(rewards, (b, end[b, s]), paid[b, s])',
        'rewards[b, end[b, s]] = paid[b, s]',
      ),
      ('turns.turn_rewards - turn_sums(made, kl, size)', 'turns.turn_rewards'),
      ("explained_variance': 1 - left", "explained_variance': left"),
      (
        'mask & np.isin(np.arange(len(mask)), trained)[:, None]',
        'mask',
      ),
    ],
  ),
  'rollout/counterfactual.py': (
    ['rollout/counterfactual_test.py'],
    [
      ('trajectory.sample * size + s, k', 's, k'),
      ('reward - lost + gamma', 'reward + gamma'),
      ('lost + gamma * total', 'lost + total'),
      ('reversed(list(turns)[first:])', 'reversed(list(turns))'),
      ('return [0, *sorted', 'return [1, *sorted'),
      ("'greedy', iteration, 0.0", "'greedy', iteration, 1.0"),
      ("'vine', iteration,", "'vine', 0,"),
      ('return np.nan', 'return 0.0'),
    ],
  ),
  'rollout/updates.py': (
    ['rollout/updates_test.py'],
    [
      (
        "'keep' if about_all else c.train.constant_groups",
        'c.train.constant_groups',
      ),
      ('range(c.train.epochs)', 'range(1)'),
      ('c.train.minibatches, order', '1, order'),
      ("if name == 'values':", "if name != 'values':"),
      ('credit.attach(batch, earned, lines)', 'batch, {}'),
      (
        'c.train.constant_groups, c.train.overlong)',
        'c.train.constant_groups)',
      ),
      ("'minibatches', iteration, epoch)", "'minibatches', iteration)"),
    ],
  ),
  'rollout/anchors.py': (
    ['rollout/anchors_test.py'],
    [
      ('max(next_id, int(out[b, t]) + 1)', 'int(out[b, t]) + 1'),
      ('row[t - level : t + 1]', 'row[t : t + 1]'),
      ('if min(window) >= 0:', 'if window[-1] >= 0:'),
      ('generator.permutation(len(flat))', 'range(len(flat))'),
    ],
  ),
  'rollout/likeness.py': (
    ['rollout/likeness_test.py'],
    [
      ('self._apart[pivot, :num] - far', 'self._apart[pivot, :num] + far'),
      ('shared += (common[places', 'shared += (0 * common[places'),
      (
        '(matched + possible) / total < threshold',
        '(possible) / total < threshold',
      ),
      ('runs if i == last + 1 else {}', 'runs'),
      ('if run > size:', 'if run >= size:'),
      ('if ratio >= self._threshold', 'if ratio > self._threshold'),
    ],
  ),
  'sampler/logits.py': (
    ['sampler/logits_test.py'],
    [
      ('logits / jnp.where(greedy, 1.0, temperature)[:, None]', 'logits'),
      ('goal = (u * upto[:, -1])', 'goal = u'),
      ('jax.random.fold_in(key, position)', 'key'),
      ('keep &= ranked >= kth', 'keep &= True'),
      ('before < top_p[:, None] * total', 'mass < top_p[:, None] * total'),
    ],
  ),
  'sampler/lane.py': (
    ['sampler/lane_test.py'],
    [
      ('self._demand >= rows or self._patience <= 0', 'True'),
      ('1 if num_live <= wanted else num_live - wanted + 1', '1'),
      ('steps = 1 if expecting else', 'steps = 1 if not expecting else'),
      ('item.tokens[item.done : item.done +', 'item.tokens[0 :'),
      ('batch.start[i] = self.length[item.slot]', 'batch.start[i] = item.done'),
      ('extendleft(reversed(unfinished))', 'extend(unfinished)'),
      ('stopped=ids[-1] in', 'stopped=ids[0] in'),
      ('self.length[slot] = result.length[slot]', 'pass'),
      ('self._in_turn[:] = False', 'pass'),
    ],
  ),
  'sampler/prompts.py': (
    ['sampler/prompts_test.py'],
    [
      ('source in self._complete and len(taken) < most', 'len(taken) < most'),
      ('and request.slot in self._complete', 'or True'),
      ('self._complete.discard(slot)', 'pass'),
    ],
  ),
  'sampler/engine.py': (
    ['sampler/engine_test.py'],
    [
      ('lane.length[slot] = 0', 'pass'),
      ('if not 0 <= length <= lane.length[local]:', 'if length < 0:'),
      ('context_length - int(lane.length[slot])', 'context_length'),
      ('if not 0 < budget <= self.max_turn_tokens:', 'if budget < 1:'),
      ('(len(item[1].free), -item[0])', '-item[0]'),
      ('slot=first + c.slot', 'slot=c.slot'),
      ('return int(before) == int(after)', 'return True'),
      ('if not all(lane.is_empty', 'if all(lane is None'),
    ],
  ),
  'sampler/decode.py': (
    ['sampler/decode_test.py'],
    [
      ('(count < state.budget) & (length < columns - 1)', 'length < columns'),
      ('jnp.where(state.live, state.length, columns)', 'state.length'),
      (
        'started = jnp.where(new.final, new.slots',
        'started = jnp.where(True, new.slots',
      ),
      ('used[0] < max_steps', 'used[0] <= max_steps'),
    ],
  ),
}
