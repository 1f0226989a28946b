#!/usr/bin/env python3
"""Compares fine-tuning with transformers and peft: the same model, rows, AdamW, clipping and threads, measured alternately.

    bench_finetune.py MODEL [--mantissa build/mantissa] [--what lora|full] [--case NAME]... [--length T] [--batch B] [--masked SHARE]
                      [--rank R] [--recompute none|attention|block] [--checkpointing] [--rounds N] [--steps N] [--threads N]

MODEL is a directory in Hugging Face's layout. A case is a policy of Mantissa and its peer:

    f32     32-true                         f32
    mixed   bf16-mixed, base in bf16        f32 weights under autocast to bf16
    bf16    bf16-true                       weights in bf16 (adapters in f32, as peft holds them)
    nf4     bf16-mixed, base in nf4-double  weights in bf16; bitsandbytes' kernels need another machine

A step is one batch of B rows of T tokens: forward, backward, clipping and AdamW. Both sides keep all activations, unless
--recompute (batch.recompute of Mantissa) or --checkpointing (gradient checkpointing of transformers) is given.
Adapters are LoRA on all linear layers. A share of the tokens can be masked at the beginning of each row, as the prompts of
conversations are. Tokens per second count all tokens of a row. The first step of each turn is not counted. Peak memory is
VmHWM of the contender's process. The script does not pass or fail. On a shared machine only the ratios are meaningful.

Needs torch, transformers and peft.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

CASES = {"f32": ("32-true", "params", "f32"), "mixed": ("bf16-mixed", "bf16", "autocast"), "bf16": ("bf16-true", "params", "bf16"),
         "nf4": ("bf16-mixed", "nf4-double", "bf16")}
SETTINGS = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)


def rows(args):
    """Ids and labels [batch, length + 1]; masked labels are -100."""
    import torch
    torch.manual_seed(1)
    vocabulary = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
    ids = torch.randint(0, vocabulary, (args.batch, args.length + 1))
    labels = ids.clone()
    labels[:, :1 + round(args.masked * args.length)] = -100
    return ids, labels


class TorchTraining:
    """Runs whole training steps in the process of a contender."""

    def __init__(self, args, kind):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch, (self.ids, self.labels) = torch, rows(args)
        self.autocast = kind == "autocast"
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype)
        self.model.config.use_cache = False
        if args.what == "lora":
            from peft import LoraConfig, get_peft_model
            self.model = get_peft_model(self.model, LoraConfig(r=args.rank, lora_alpha=2 * args.rank, lora_dropout=0.0,
                                                               target_modules="all-linear", task_type="CAUSAL_LM"))
        if args.checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, fused=True, **SETTINGS)

    def step(self):
        torch = self.torch
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            logits = self.model(input_ids=self.ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), self.labels[:, 1:].flatten())
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        return loss.item()


def peak_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024


def work(args):
    """The process of a PyTorch contender: runs the number of steps of each line it reads."""
    import torch
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    training = TorchTraining(args, args.worker)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line) + 1):
            start = time.perf_counter()
            losses.append(training.step())
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds[1:], "losses": losses, "peak": peak_bytes()}), file=answers, flush=True)


class Torch:
    def __init__(self, args, kind):
        self.name = f"PyTorch {kind}" + (", checkpointing" if args.checkpointing else "")
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{self.name} does not run")

    def turn(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.peak, self.losses = answer["peak"], getattr(self, "losses", answer["losses"])
        return answer["seconds"]

    def end(self):
        self.process.kill()
        self.process.wait()


class Mantissa:
    def __init__(self, args, policy, base, scratch):
        self.args, self.scratch, self.turns = args, scratch, 0
        self.name = f"Mantissa {policy}" + (f", base {base}" if args.what == "lora" and base != "params" else "")
        self.name += f", recompute {args.recompute}" if args.recompute != "none" else ""
        ids, labels = rows(args)
        (scratch / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": i, "labels": l}) + "\n" for i, l in zip(ids.tolist(), labels.tolist())))
        adapter = f'[adapter]\nkind = "lora"\nrank = {args.rank}\nalpha = {2 * args.rank}\ntarget = "*"\nbase = "{base}"\n'
        self.config = f"""[model]
path = "{pathlib.Path(args.model).resolve()}"
{adapter if args.what == "lora" else ""}[train]
objective = "sft"
[data]
source = "{scratch / 'rows.jsonl'}"
sequence_length = {args.length}
shuffle = false
validation = 0
[batch]
global_batch_size = {args.batch}
micro_batch_size = {args.batch}
recompute = "{args.recompute}"
[optimizer]
lr = {SETTINGS["lr"]}
betas = [{SETTINGS["betas"][0]}, {SETTINGS["betas"][1]}]
weight_decay = 0.0
[schedule]
name = "constant"
warmup_steps = 0
[precision]
policy = "{policy}"
[checkpoint]
interval = 0
[log]
health_interval = 0
tensorboard = false
"""

    def turn(self, steps):
        self.turns += 1
        config, out = self.scratch / "run.toml", self.scratch / f"run-{self.turns}"
        config.write_text(f"[run]\nsteps = {steps + 1}\n" + self.config)
        command = [self.args.mantissa, "train", config, "--out", out, "--threads", str(self.args.threads), "--quiet"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        messages = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"mantissa train failed:\n{messages}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((out / "summary.json").read_text())
        self.peak, self.predicted = usage.ru_maxrss * 1024, summary["predicted_peak_bytes"]
        self.losses = [line["loss"] for line in lines]
        subprocess.run(["rm", "-rf", out], check=True)
        return [line["seconds"] for line in lines][1:]

    def end(self):
        pass


def compare(args, case):
    policy, base, kind = CASES[case]
    with tempfile.TemporaryDirectory() as scratch:
        field = [Torch(args, kind), Mantissa(args, policy, base, pathlib.Path(scratch))]
        seconds = {contender.name: [] for contender in field}
        for _ in range(args.rounds):
            for contender in field:
                seconds[contender.name] += contender.turn(args.steps)
        for contender in field:
            contender.end()
    tokens, peer = args.batch * args.length, field[0]
    speed = {name: tokens / statistics.median(values) for name, values in seconds.items()}
    for contender in field:
        ratios = "" if contender is peer else \
            f"   {speed[contender.name] / speed[peer.name]:.2f} x the speed, {contender.peak / peer.peak:.2f} x the memory"
        predicted = f" ({contender.predicted / 1e9:.2f} GB predicted)" if hasattr(contender, "predicted") else ""
        print(f"{case:6} {contender.name:42} {speed[contender.name]:7.0f} tokens/s  {contender.peak / 1e9:6.2f} GB{predicted}{ratios}   "
              f"losses {' '.join(f'{x:.4f}' for x in contender.losses[:3])}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--what", choices=["lora", "full"], default="lora")
    parser.add_argument("--case", choices=CASES, action="append", help="one or more; default: all that --what allows")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--masked", type=float, default=0.0, help="share of each row's tokens that are not predicted")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--recompute", choices=["none", "attention", "block"], default="none", help="of Mantissa")
    parser.add_argument("--checkpointing", action="store_true", help="of PyTorch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="of a turn, after its first")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args)
    print(f"{args.what}, {args.batch} rows of {args.length} tokens, {100 * args.masked:.0f} % masked, {args.threads} threads")
    for case in args.case or [name for name in CASES if args.what == "lora" or name != "nf4"]:
        compare(args, case)


if __name__ == "__main__":
    main()
