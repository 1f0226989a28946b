#!/usr/bin/env python3
"""Compares the speed of `mantissa rl` with the same loop written with transformers' generate() and PyTorch.

Both sample PROMPTS x SAMPLES responses from one model, score them, and make one optimizer step of GRPO on them
without a reference, in turns. The model is a directory whose texts end at id 0, such as one that ./dev demo writes; without a
tokenizer.json its ids are bytes. Prints seconds per step, their ratio, and tokens per second.

    python tools/bench_rl.py --mantissa build/mantissa --model runs/demo-1/model --turns 3
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import tokenizers
import torch
import transformers


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mantissa", default="build/mantissa")
    p.add_argument("--model", required=True)
    p.add_argument("--prompts", type=int, default=16)
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--max-new-tokens", type=int, default=200)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--people", type=int, default=2)
    p.add_argument("--precision", default="bf16-mixed", choices=["bf16-mixed", "32-true"])
    p.add_argument("--threads", type=int, default=2)
    return p.parse_args()


def tokenizer_of(args):
    file = pathlib.Path(args.model) / "tokenizer.json"
    return tokenizers.Tokenizer.from_file(str(file)) if file.exists() else None


def mantissa_seconds(args, folder, turn):
    config = folder / "rl.toml"
    config.write_text(
        f"""[run]
steps = {args.steps}
seed = {turn + 1}
[model]
path = "{pathlib.Path(args.model).resolve()}"
[data]
source = "kk"
tokenizer = "{"model" if tokenizer_of(args) else "byte"}"
template = "none"
people_min = {args.people}
people_max = {args.people}
validation = 0.0
[optimizer]
lr = 1e-5
[schedule]
warmup_steps = 0
[log]
tensorboard = false
health_interval = 0
[checkpoint]
interval = 0
[rl]
prompts_per_step = {args.prompts}
samples_per_prompt = {args.samples}
max_new_tokens = {args.max_new_tokens}
kl = "none"
""")
    out = folder / f"run-{turn}"
    subprocess.run([args.mantissa, "rl", str(config), "--out", str(out), "--quiet", "--precision", args.precision,
                    "--threads", str(args.threads)], check=True, stdout=subprocess.DEVNULL)
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [s for s in steps if "seconds" in s]
    prompts = [json.loads(line)["prompt"] for line in (out / "samples.jsonl").open()]
    # Sampled tokens per step, and the prompts of the first step.
    tokens = statistics.mean(s["response_length"] for s in steps) * args.prompts * args.samples
    return [s["seconds"] for s in steps], tokens, prompts[:: args.samples][: args.prompts]


class PyTorchLoop:
    def __init__(self, args):
        self.args, tokenizer = args, tokenizer_of(args)
        self.encode = (lambda text: tokenizer.encode(text).ids) if tokenizer else lambda text: list(text.encode())
        self.decode = tokenizer.decode if tokenizer else lambda ids: bytes(ids).decode(errors="replace")
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, betas=(0.9, 0.95))
        self.autocast = lambda: torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16-mixed")

    def step(self, prompts):
        args, begin = self.args, time.perf_counter()
        ids = [self.encode(p) for p in prompts for _ in range(args.samples)]
        width = max(map(len, ids))
        batch = torch.tensor([[0] * (width - len(i)) + i for i in ids])
        mask = torch.tensor([[0] * (width - len(i)) + [1] * len(i) for i in ids])
        with torch.no_grad(), self.autocast():
            full = self.model.generate(input_ids=batch, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0,
                                       top_p=1.0, max_new_tokens=args.max_new_tokens, eos_token_id=0, pad_token_id=0)
        new = full[:, width:]
        ended = (new == 0).long().cumsum(1)
        counts = ((ended == 0) | ((new == 0) & (ended == 1))).float()
        rewards = torch.tensor([float("knave" in self.decode(r[r > 0].tolist())) for r in new])
        groups = rewards.view(args.prompts, args.samples)
        advantages = ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-6)).view(-1, 1)
        full_mask = torch.cat([mask, counts.long()], 1)
        positions = (full_mask.cumsum(1) - 1).clamp(min=0)
        total = counts.sum()
        with torch.no_grad():
            old = torch.cat([self.log_probs(full, full_mask, positions, new, s) for s in range(0, len(full), 8)])
        self.optimizer.zero_grad()
        for s in range(0, len(full), 8):
            log_probs = self.log_probs(full, full_mask, positions, new, s)
            part = slice(s, s + 8)
            ratio = (log_probs - old[part]).exp()
            loss = -torch.min(ratio * advantages[part], ratio.clamp(0.8, 1.2) * advantages[part])
            (loss * counts[part]).sum().div(total).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - begin, counts.sum().item()

    def log_probs(self, full, mask, positions, new, first):
        part = slice(first, first + 8)
        with self.autocast():
            logits = self.model(input_ids=full[part], attention_mask=mask[part], position_ids=positions[part]).logits
        logits = logits[:, -new.shape[1] - 1 : -1].float()
        return logits.log_softmax(-1).gather(-1, new[part].unsqueeze(-1)).squeeze(-1)


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    loop = PyTorchLoop(args)
    ours, theirs, our_tokens, their_tokens = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        for turn in range(args.turns):
            seconds, tokens, prompts = mantissa_seconds(args, pathlib.Path(name), turn)
            ours += seconds[1:]
            our_tokens.append(tokens)
            for _ in range(args.steps - 1):
                second, count = loop.step(prompts)
                theirs.append(second)
                their_tokens.append(count)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{args.precision}, {args.prompts} x {args.samples} responses, medians of {len(ours)} steps")
    print(f"mantissa      {a:8.3f} s a step, {statistics.mean(our_tokens) / a:8.0f} sampled tokens/s")
    print(f"transformers  {b:8.3f} s a step, {statistics.mean(their_tokens) / b:8.0f} sampled tokens/s")
    print(f"ratio of sampled tokens/s: {statistics.mean(our_tokens) / a / (statistics.mean(their_tokens) / b):.2f}")


if __name__ == "__main__":
    main()
