#!/usr/bin/env python3
"""Compares training with PyTorch: the same Llama or RWKV-7, batch, AdamW, clipping and threads, measured alternately.

    bench_peers.py [--mantissa build/mantissa] [--shape 5M|24M|124Mx64|124Mx256|rwkv24M|rwkv191M]... [--threads N] [--rounds 3]
                   [--seconds 6] [--precision POLICY]... [--no-compile] [--no-f16]

Runs whole optimizer steps on a single batch of random ids. Tokens per second are medians over all steps except the first of each
turn. Memory is the peak resident set of the contender's process. Each PyTorch contender is a separate process that waits while
others run. RWKV-7 in PyTorch computes its recurrence token by token, or in chunks of matrix products; these contenders run one after
the other, because they keep up to 16 GB. The script does not pass or fail. On a shared machine only the ratios are meaningful.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

SHAPES = {  # batch and length of a step last
    "5M": dict(hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=688, vocab_size=256,
               tie_word_embeddings=False, batch=8, length=256),
    "24M": dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=1376, vocab_size=4096,
                tie_word_embeddings=False, batch=8, length=256),
    "124Mx64": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048, vocab_size=50304,
                    tie_word_embeddings=True, batch=4, length=64),
    "124Mx256": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048, vocab_size=50304,
                     tie_word_embeddings=True, batch=4, length=256),
    "rwkv24M": dict(model_type="rwkv7", hidden_size=512, num_hidden_layers=6, head_dim=64, intermediate_size=2048, vocab_size=4096,
                    tie_word_embeddings=False, batch=8, length=256),
    "rwkv191M": dict(model_type="rwkv7", hidden_size=768, num_hidden_layers=12, head_dim=64, intermediate_size=3072,
                     vocab_size=65536, tie_word_embeddings=False, batch=2, length=512),
}
RANKS = dict(decay_low_rank_dim=64, a_low_rank_dim=64, v_low_rank_dim=32, gate_low_rank_dim=128)
for _shape in SHAPES.values():
    _shape.update(RANKS if "model_type" in _shape else {})
CHUNK = 32  # tokens; 16 and 64 differ by less than 4 %
# The policies of Mantissa, each with the precision of PyTorch that it is compared with.
PEERS = {"32-true": "f32", "bf16-mixed": "bf16", "16-mixed": "f16", "bf16-matmul-x3": "f32", "bf16-matmul-x6": "f32",
         "fp8-hybrid": "f32", "bf16-mixed compute=mxfp8": "f32"}
EPS, THETA = 1e-5, 10000.0
SETTINGS = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def random_ids(shape):
    import torch
    torch.manual_seed(1)
    return torch.randint(0, shape["vocab_size"], (shape["batch"], shape["length"] + 1))


def torch_rwkv7_model(shape, recurrence):
    """Returns the RWKV-7 of the comparison, with its recurrence by token or by chunk."""
    import torch
    import torch_rwkv7
    fields = {key: value for key, value in shape.items() if key not in ("batch", "length", "model_type")}
    if recurrence == "chunk":
        torch_rwkv7.TimeMixing.recurrence = staticmethod(lambda *rows: torch_rwkv7.by_chunk(*rows, size=CHUNK))
    model = torch_rwkv7.make(torch_rwkv7.Config(num_heads=shape["hidden_size"] // shape["head_dim"], **fields)).train()

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.of = model

        def forward(self, ids, targets):
            return torch.nn.functional.cross_entropy(self.of(ids).logits.float().flatten(0, 1), targets.flatten())

    return WithLoss()


def torch_model(shape, recurrence):
    """Returns the model of the comparison in idiomatic PyTorch: a Llama, or an RWKV-7."""
    if shape.get("model_type") == "rwkv7":
        return torch_rwkv7_model(shape, recurrence)
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self, hidden_size, num_attention_heads, intermediate_size, **_):
            super().__init__()
            self.heads = num_attention_heads
            self.norm, self.mlp_norm = (nn.RMSNorm(hidden_size, EPS) for _ in range(2))
            self.q, self.k, self.v, self.o = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(hidden_size, intermediate_size, bias=False) for _ in range(2))
            self.down = nn.Linear(intermediate_size, hidden_size, bias=False)

        def rotate(self, x, cos, sin):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        def forward(self, x, cos, sin):
            y = self.norm(x)
            q, k, v = (p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
            q, k = self.rotate(q, cos, sin).to(v.dtype), self.rotate(k, cos, sin).to(v.dtype)
            x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.mlp_norm(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))


    class Llama(nn.Module):
        def __init__(self, shape, length):
            super().__init__()
            self.embed = nn.Embedding(shape["vocab_size"], shape["hidden_size"])
            self.blocks = nn.ModuleList(Block(**shape) for _ in range(shape["num_hidden_layers"]))
            self.norm = nn.RMSNorm(shape["hidden_size"], EPS)
            self.head = nn.Linear(shape["hidden_size"], shape["vocab_size"], bias=False)
            head_dim = shape["hidden_size"] // shape["num_attention_heads"]
            angle = torch.arange(length)[:, None] / THETA ** (torch.arange(0, head_dim, 2) / head_dim)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
            if shape["tie_word_embeddings"]:
                self.head.weight = self.embed.weight
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets):
            x = self.embed(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())

    return Llama(shape, shape["length"])


class TorchTraining:
    """Runs whole training steps in the process of a contender."""

    def __init__(self, shape, autocast, compiled, recurrence):
        import torch
        self.torch, self.ids = torch, random_ids(shape)
        self.autocast = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[autocast]
        self.model = torch_model(shape, recurrence)
        self.run = torch.compile(self.model) if compiled else self.model
        matrices = [p for p in self.model.parameters() if p.ndim == 2]
        gains = [p for p in self.model.parameters() if p.ndim != 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices}, {"params": gains, "weight_decay": 0.0}], fused=True, **SETTINGS)
        self.scaler = torch.amp.GradScaler("cpu", enabled=self.autocast == torch.float16)

    def step(self):
        torch = self.torch
        with torch.autocast("cpu", self.autocast or torch.bfloat16, enabled=self.autocast is not None):
            loss = self.run(self.ids[:, :-1], self.ids[:, 1:])
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def turn(self, seconds):
        """Returns tokens per second of each step of a turn except its first; at least one."""
        speeds, begin = [], time.perf_counter()
        while len(speeds) < 2 or time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            self.step()
            speeds.append(self.ids[:, 1:].numel() / (time.perf_counter() - start))
        return speeds[1:]


def work(args):
    """The process of a PyTorch contender: reads lines with seconds, writes lines with speeds and peak memory."""
    import torch
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    autocast, compiled, recurrence = args.worker.split(",")
    training = TorchTraining(SHAPES[args.shape[0]], autocast, compiled == "compiled", recurrence)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # hides compiler output
    training.step()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        speeds = training.turn(float(line))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"speeds": speeds, "peak": peak}), file=answers, flush=True)


class Torch:
    """A contender: PyTorch in a separate process."""

    def __init__(self, name, shape, threads, autocast, compiled=False, recurrence=""):
        self.name = name
        command = [sys.executable, __file__, "--shape", shape, "--threads", str(threads), "--worker",
                   f"{autocast},{'compiled' if compiled else 'eager'},{recurrence}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.works = self.process.stdout.readline().strip() == "ready"

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.peak = answer["peak"]
        return answer["speeds"]

    def end(self):
        self.process.kill()
        self.process.wait()


class Mantissa:
    """A contender: `mantissa train` on the same shape, with its reported tokens_per_second."""

    def __init__(self, name, program, precision, shape, ids, threads, scratch):
        self.name, self.program, self.scratch, self.turns, self.step = name, program, scratch, 0, None
        self.arguments = ["--precision", precision, "--threads", str(threads), "--quiet"]
        dtype = "<u2" if shape["vocab_size"] < 65536 else "<u4"
        (scratch / "tokens.bin").write_bytes(bytes(ids[:, :-1].flatten().numpy().astype(dtype)) + b"\0" * 4)
        fields = {key: value for key, value in shape.items() if key not in ("batch", "length")}
        if "model_type" not in fields:
            fields = dict(model_type="llama", num_key_value_heads=shape["num_attention_heads"], rms_norm_eps=EPS, rope_theta=THETA,
                          max_position_embeddings=shape["length"]) | fields
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in fields.items())
        self.config = f"""[model]
{lines}
[data]
source = "tokens.bin"
format = "tokens"
sequence_length = {shape["length"]}
shuffle = false
validation = 0
[batch]
global_batch_size = {shape["batch"]}
micro_batch_size = {shape["batch"]}
[schedule]
name = "constant"
warmup_steps = 0
[checkpoint]
interval = 1000000
[log]
health_interval = 0
"""

    def turn(self, seconds):
        self.turns += 1
        steps = 3 if self.step is None else max(2, 1 + round(seconds / self.step))
        config, out = self.scratch / "run.toml", self.scratch / f"{self.name.replace(' ', '-')}-{self.turns}"
        config.write_text(f"[run]\nsteps = {steps}\n" + self.config)
        done = subprocess.run([self.program, "train", config, "--out", out, *self.arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"mantissa train failed:\n{done.stderr}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((out / "summary.json").read_text())
        self.peak, self.predicted = summary["measured_peak_bytes"], summary["predicted_peak_bytes"]
        self.share = statistics.median(line["peak_share"] for line in lines[1:])
        self.step = statistics.median(line["seconds"] for line in lines[1:])
        subprocess.run(["rm", "-rf", out], check=True)
        return [line["tokens_per_second"] for line in lines][1:]

    def end(self):
        pass


def contenders(args, name, ids, scratch):
    shape = SHAPES[name]
    wanted = [("PyTorch f32", "f32", False, ""), ("PyTorch f32, compiled", "f32", True, ""), ("PyTorch bf16 autocast", "bf16", False, ""),
              ("PyTorch bf16 autocast, compiled", "bf16", True, ""), ("PyTorch f16 autocast", "f16", False, "")]
    if shape.get("model_type") == "rwkv7":
        wanted = [("PyTorch f32 by token", "f32", False, "token"), ("PyTorch f32 by chunk", "f32", False, "chunk"),
                  ("PyTorch f32 by chunk, compiled", "f32", True, "chunk"), ("PyTorch bf16 autocast by token", "bf16", False, "token"),
                  ("PyTorch bf16 autocast by chunk", "bf16", False, "chunk"),
                  ("PyTorch bf16 autocast by chunk, compiled", "bf16", True, "chunk")]
    for title, autocast, compiled, recurrence in wanted:
        if (compiled and not args.compile) or (autocast == "f16" and not (args.f16 and name == "5M")):
            continue
        contender = Torch(title, name, args.threads, autocast, compiled, recurrence)
        if contender.works:
            yield contender
        else:
            print(f"{title}: skipped; it does not run on this machine")
            contender.end()
    if not pathlib.Path(args.mantissa).exists():
        print(f"{args.mantissa} does not exist: measuring only PyTorch")
        return
    for precision in args.precision or PEERS:
        yield Mantissa(f"Mantissa {precision}", args.mantissa, precision, shape, ids, args.threads, scratch)


def compare(args, name):
    speeds, shares = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        def turn(contender):
            speeds.setdefault(contender.name, []).extend(contender.turn(args.seconds))
            if isinstance(contender, Mantissa):
                shares.setdefault(contender.name, []).append(contender.share)

        field, all_at_once = [], "model_type" not in SHAPES[name]
        for contender in contenders(args, name, random_ids(SHAPES[name]), pathlib.Path(scratch)):
            field.append(contender)
            if not all_at_once:
                for _ in range(args.rounds):
                    turn(contender)
                contender.end()
        if all_at_once:
            for _ in range(args.rounds):
                for contender in field:
                    turn(contender)
            for contender in field:
                contender.end()
    shape = SHAPES[name]
    median = {title: statistics.median(values) for title, values in speeds.items()}
    best = {kind: max((v for title, v in median.items() if title.startswith(f"PyTorch {kind}")), default=None)
            for kind in ("f32", "bf16", "f16")}
    print(f"\n{name}, {shape['batch']} x {shape['length']} tokens per step, {args.threads} threads, {args.rounds} turns of about "
          f"{args.seconds:g} s each")
    print(f"{'':40} {'tokens/s':>9} {'quartiles':>13} {'to its PyTorch':>15} {'to PyTorch f32':>15} {'of peak':>8} {'peak memory':>12}")
    for contender in field:
        values, middle = speeds[contender.name], median[contender.name]
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (middle, middle, middle)
        peer = best.get(PEERS.get(contender.name.removeprefix("Mantissa "), "f32")) if contender.name in shares else None
        print(f"{contender.name:40} {middle:9.0f} {f'{low:.0f}-{high:.0f}':>13} {f'{middle / peer:.2f}' if peer else '':>15} "
              f"{middle / best['f32']:15.2f} {f'{100 * statistics.median(shares[contender.name]):.0f} %' if contender.name in shares else '':>8} "
              f"{contender.peak / 1e9:9.2f} GB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one or more; default: the Llamas")
    parser.add_argument("--precision", action="append", help=f"one or more policies; default: {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="duration of a turn")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-f16", dest="f16", action="store_false", help="skip PyTorch's f16, whose steps take half a minute")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args)
    import torch
    print(f"PyTorch {torch.__version__}; \"to its PyTorch\": relative to the faster of eager and compiled in the same "
          "precision, or in f32 if PyTorch lacks the policy's")
    for name in args.shape or [name for name in SHAPES if "model_type" not in SHAPES[name]]:
        compare(args, name)


if __name__ == "__main__":
    main()
