#!/usr/bin/env python3
"""Compares generation with transformers: the same Llama and weights, greedy, with a key-value cache, measured alternately. Or with
llama.cpp: the same GGUF files.

    bench_generate.py [--mantissa build/mantissa] [--streams 1,16] [--tokens 256] [--prompts 8] [--prompt-tokens 512]
                      [--rounds 3] [--threads N] [--model DIR]
    bench_generate.py --llama-bench PROGRAM --gguf FILE=POLICY... [--mantissa build/mantissa] [--tokens 256] [--rounds 3] [--threads N]

Decoding: tokens per second of each turn (including a prompt of 16 tokens), medians over the turns, and ratios of the medians.
`of limit` is the share of the speed at which each stream reads all required weights once per token at the bandwidth that
`mantissa doctor` measures. Prompts: prompt tokens per second of a turn of random prompts, one after the other, with one new token
each; --prompts 0 or --streams "" leaves a part out. The model is a Llama of 134M with random weights unless DIR is given. With
--gguf, llama.cpp's llama-bench and `generate FILE --precision POLICY` generate in turn. The script does not pass or fail. On a shared machine only the ratios are meaningful.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings

import torch
import transformers

PROMPT = 16
SHAPE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12, intermediate_size=2048,
             vocab_size=32000, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None)


class Torch:
    def __init__(self, model, dtype):
        self.name = f"transformers {dtype}"
        self.model = transformers.LlamaForCausalLM.from_pretrained(model, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
        self.model.generation_config.pad_token_id = 0

    def turn(self, streams, tokens):
        ids = torch.arange(1, PROMPT + 1).repeat(streams, 1)
        with torch.inference_mode():
            start = time.perf_counter()
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                                      do_sample=False)
            seconds = time.perf_counter() - start
        return (out.shape[1] - PROMPT) * streams / seconds

    def prompts(self, rows):
        with torch.inference_mode():
            start = time.perf_counter()
            for row in rows:
                ids = torch.tensor([row])
                self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
            seconds = time.perf_counter() - start
        return sum(map(len, rows)) / seconds


class Mantissa:
    def __init__(self, program, model, precision, threads):
        self.name = f"Mantissa {precision}"
        self.command = [program, "generate", model, "--precision", precision, "--threads", str(threads), "--json"]

    def generate(self, rows, options):
        """Returns the new tokens per second of the whole command's generation, without loading."""
        prompts = [option for row in rows for option in ("--prompt-ids", ",".join(map(str, row)))]
        done = subprocess.run([*self.command, *prompts, *options], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"mantissa generate failed:\n{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]

    def turn(self, streams, tokens):
        return self.generate([range(1, PROMPT + 1)],
                             ["--samples", str(streams), "--streams", str(streams), "--max-new-tokens", str(tokens)])

    def prompts(self, rows):
        return self.generate(rows, ["--streams", "1", "--max-new-tokens", "1"]) * sum(map(len, rows)) / len(rows)


def bandwidth(program, threads):
    """Returns the bytes per second that this machine streams."""
    done = subprocess.run([program, "doctor", "--threads", str(threads), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["bytes_per_second"]


def weights_per_token(model):
    """Returns the number of weight elements that one token reads: all except the embedding rows of other tokens."""
    embedding = model.get_input_embeddings().weight
    tied = model.get_output_embeddings().weight is embedding
    return sum(p.numel() for p in model.parameters()) - (0 if tied else embedding.numel())


def measure(contenders, rounds, turn):
    """Yields the contenders with the median, lowest and highest speed of their turns and the median's ratio to the first one's."""
    speeds = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, values in zip(contenders, speeds):
            values.append(turn(contender))
    base = statistics.median(speeds[0])
    for contender, values in zip(contenders, speeds):
        median = statistics.median(values)
        yield contender.name, median, f"{min(values):.1f}-{max(values):.1f}", median / base


def decode(args, field, element):
    limit = bandwidth(args.mantissa, args.threads) / (element * weights_per_token(field[0].model))
    print(f"\n{f'{args.tokens} tokens after {PROMPT}':24} {'streams':>7} {'tokens/s':>9} {'lowest-highest':>15} "
          f"{'/ transformers':>15} {'of limit':>9}")
    for streams in map(int, args.streams.split(",")):
        field[0].turn(streams, 2)  # warms up
        for name, median, span, ratio in measure(field, args.rounds, lambda c: c.turn(streams, args.tokens)):
            print(f"{name:24} {streams:7} {median:9.1f} {span:>15} {ratio:15.2f} {median / (limit * streams):9.2f}", flush=True)


def read_prompts(args, field):
    rows = torch.randint(0, field[0].model.config.vocab_size, (args.prompts, args.prompt_tokens)).tolist()
    field[0].prompts(rows[:1])  # warms up
    print(f"\n{f'{args.prompts} prompts of {args.prompt_tokens}':24} {'':7} {'tokens/s':>9} {'lowest-highest':>15} {'/ transformers':>15}")
    for name, median, span, ratio in measure(field, args.rounds, lambda c: c.prompts(rows)):
        print(f"{name:24} {'':7} {median:9.1f} {span:>15} {ratio:15.2f}", flush=True)


class LlamaCpp:
    """A contender: llama-bench, which begins with an empty context."""

    def __init__(self, program, file, threads):
        self.name = "llama.cpp"
        self.command = [program, "-m", file, "-p", "0", "-r", "1", "-t", str(threads), "-o", "json"]

    def turn(self, _, tokens):
        done = subprocess.run([*self.command, "-n", str(tokens)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]["avg_ts"]


def bytes_per_token(file):
    """Returns the bytes of a GGUF file that one token reads: all tensors except the embedding, unless it is the head too."""
    import gguf
    tensors = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(file).tensors}
    return sum(tensors.values()) - (tensors["token_embd.weight"] if "output.weight" in tensors else 0)


def decode_gguf(args):
    print(f"\n{f'{args.tokens} tokens':40} {'tokens/s':>9} {'lowest-highest':>15} {'/ llama.cpp':>12} {'of limit':>9}")
    for one in args.gguf:
        file, _, policy = one.partition("=")
        limit = bandwidth(args.mantissa, args.threads) / bytes_per_token(file)
        field = [LlamaCpp(args.llama_bench, file, args.threads), Mantissa(args.mantissa, file, policy, args.threads)]
        for name, median, span, ratio in measure(field, args.rounds, lambda c: c.turn(1, args.tokens)):
            print(f"{f'{pathlib.Path(file).stem}, {name}':40} {median:9.1f} {span:>15} {ratio:12.2f} {median / limit:9.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--model")
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--llama-bench", help="llama.cpp's program")
    parser.add_argument("--gguf", action="append", metavar="FILE=POLICY")
    args = parser.parse_args()
    if args.gguf:
        return decode_gguf(args)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as scratch:
        model = args.model or scratch
        if not args.model:
            transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).save_pretrained(scratch)
        print(f"{args.threads} threads, PyTorch {torch.__version__}, transformers {transformers.__version__}, {args.rounds} turns each")
        for dtype, precisions in (("f32", ["32-true"]), ("bf16", ["bf16-mixed", "bf16-true"])):
            field = [Torch(model, dtype), *(Mantissa(args.mantissa, model, p, args.threads) for p in precisions)]
            if args.streams:
                decode(args, field[:2], {"f32": 4, "bf16": 2}[dtype])
            if args.prompts:
                read_prompts(args, field)


if __name__ == "__main__":
    main()
