#!/usr/bin/env python3
"""Compares a step of supervised fine-tuning with transformers: the number of trained tokens, the loss, and every gradient.

A random Llama gets the tokenizer and the chat template of a model directory. `mantissa train` runs one step of gradient descent
at rate 1 over some conversations, plain and packed, so that each weight changes by its gradient. transformers computes the same
in f64 from the ids of apply_chat_template, with the labels of masked tokens -100 and the sum over all rows divided by the number
of trained tokens. Needs torch, transformers and safetensors.

usage: tools/check_sft.py MANTISSA MODEL_DIRECTORY [ROWS.jsonl] [--count N]

ROWS.jsonl has rows with `messages`, which begin with a system message because many templates add one, or the puzzles of Logic-RL, of which quiz and solution are used as one exchange.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

# ChatML with generation blocks, from which transformers makes the mask of the assistant's tokens.
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
          "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}"
          "{% endfor %}")
LAYERS, HIDDEN, FEED = 2, 64, 96


def conversations(path, count):
    if path is None:
        topics = ["the sea", "a lamp", "Ångström", "two\nlines", "<b>bold</b>", "numbers 1 2 3"]
        return [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Tell me of {t}."},
                 {"role": "assistant", "content": f"{t}: " + "yes. " * (i + 1)}, {"role": "user", "content": "More?"},
                 {"role": "assistant", "content": f"No more of {t} 😀."}] for i, t in enumerate(topics)][:count]
    rows = []
    for line in open(path):
        row = json.loads(line)
        rows.append(row["messages"] if "messages" in row else
                    [{"role": "system", "content": "Solve the puzzle."}, {"role": "user", "content": row["quiz"]},
                     {"role": "assistant", "content": row["solution_text"]}])
        if len(rows) == count:
            break
    return rows


def expected(tokenizer, model, rows):
    """Returns the loss, the gradients in f64 and the number of trained tokens."""
    encoded = [tokenizer.apply_chat_template(r, chat_template=CHATML, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True) for r in rows]
    trained = sum(sum(e["assistant_masks"][1:]) for e in encoded)
    model = model.double()
    loss = torch.zeros((), dtype=torch.float64)
    for e in encoded:
        ids = torch.tensor([e["input_ids"]])
        labels = torch.tensor([i if m else -100 for i, m in zip(e["input_ids"], e["assistant_masks"])])
        part = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], labels[1:], ignore_index=-100, reduction="sum") / trained
        part.backward()
        loss += part.detach()
    return loss.item(), {n: p.grad for n, p in model.named_parameters()}, trained, [len(e["input_ids"]) for e in encoded]


def tolerance(tokens):
    """The relative error of a gradient: each product on its way has a sum of k terms, whose roundings of at most 2^-24 add up to
    about sqrt(k) of them, forward and backward, and the gradient itself is a sum over the tokens."""
    inner = LAYERS * (4 * HIDDEN**0.5 + 2 * FEED**0.5 + 2 * tokens**0.5 + 8) + 2 * HIDDEN**0.5
    return 2.0**-24 * (2 * inner + tokens**0.5)


def run(mantissa, folder, name, rows, length, packing):
    (folder / f"{name}.toml").write_text(f"""
[run]
steps = 1
[model]
path = "model"
[train]
objective = "sft"
[data]
source = "rows.jsonl"
shuffle = false
validation = 0
sequence_length = {length}
packing = {"true" if packing else "false"}
[batch]
global_batch_size = {1 if packing else len(rows)}
micro_batch_size = 1
[optimizer]
name = "sgd"
lr = 1.0
max_grad_norm = 0.0
[schedule]
name = "constant"
warmup_steps = 0
""")
    out = folder / name
    subprocess.run([mantissa, "train", folder / f"{name}.toml", "--out", out, "--quiet"], check=True)
    metrics = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    return metrics, load_file(out / "model/model.safetensors"), json.loads((out / "summary.json").read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mantissa")
    parser.add_argument("model")
    parser.add_argument("rows", nargs="?")
    parser.add_argument("--count", type=int, default=6)
    a = parser.parse_args()
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    rows = conversations(a.rows, a.count)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=HIDDEN, intermediate_size=FEED, num_hidden_layers=LAYERS,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.1)
    model = LlamaForCausalLM(config).float()
    failed = False
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        (folder / "rows.jsonl").write_text("".join(json.dumps({"messages": r}) + "\n" for r in rows))
        before = load_file(folder / "model/model.safetensors")
        loss, grads, trained, lengths = expected(tokenizer, model, rows)
        hashes = set()
        # One pack has room for all rows, and for no other.
        for name, packing, length in [("plain", False, max(lengths)), ("packed", True, sum(lengths) - len(rows))]:
            metrics, after, summary = run(a.mantissa, folder, name, rows, length, packing)
            hashes.add(summary["weights_xxh64"])
            print(f"{name}: tokens {metrics['tokens']} (transformers {trained}), loss {metrics['loss']} ({loss:.9g}), "
                  f"masked {metrics['masked_share']:.3f}, padding {metrics['padding_share']:.3f}")
            failed |= metrics["tokens"] != trained or abs(metrics["loss"] - loss) > tolerance(max(lengths)) * loss
            worst = 0
            for key, g in grads.items():
                got = before[key].double() - after[key].double()
                rounding = 2.0**-24 * (before[key].double().norm() + g.norm())  # of the weight that moves
                limit = tolerance(trained) * g.norm() + rounding
                error = (got - g).norm()
                worst = max(worst, (error / limit).item())
                if error > limit:
                    failed = True
                    print(f"  {key}: error {error:.3g} above {limit:.3g}")
            print(f"  largest error of a gradient: {worst:.3f} of its tolerance")
        if len(hashes) != 1:
            failed = True
            print("packed and plain rows give different weights")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
