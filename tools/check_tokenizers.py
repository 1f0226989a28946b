#!/usr/bin/env python3
"""Compares the tokenizers of written models with transformers: ids, decoded texts, special tokens and chat templates.

For each kind of tokenizer that docs/data.md ("Files of a written model") says transformers reads, `mantissa train` trains a
random model for one step. AutoTokenizer then loads the run's model/, encodes some texts, and renders a conversation under each
built-in template. The ids must be those of `mantissa tokenizer encode`. With torch, the reward program of docs/post-training.md
also scores responses, as it is written there, with a reward model of bytes. Needs transformers 5, sentencepiece and jinja2.

usage: tools/check_tokenizers.py MANTISSA
"""
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import sentencepiece
import transformers
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = ["Ben said Kim is a knave. (1) 12345 don't", "a  b\n\nc", "naïve Āā 日本語 😀", "  two spaces first", "tab\tx  ", ""]
MESSAGES = [{"role": "user", "content": "Who is a knave?"}, {"role": "assistant", "content": "Ben."}]
CONFIG = """[run]
steps = {steps}
[model]
{model}
[train]
objective = "{objective}"
[data]
source = "{source}"
{data}
[batch]
global_batch_size = 2
"""
SIZES = """vocab_size = {vocabulary}
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 512"""


class Check:
    def __init__(self, program, folder):
        self.program, self.folder, self.faults = pathlib.Path(program).resolve(), pathlib.Path(folder), 0

    def run(self, *arguments, **options):
        done = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True, **options)
        if done.returncode != 0:
            sys.exit(f"mantissa {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def train(self, name, **fields):
        config = self.folder / f"{name}.toml"
        config.write_text(CONFIG.format(**{"steps": 1, "source": "kk", **fields}))
        self.run("train", config, "--quiet", "--overwrite")
        return self.folder / "runs" / name / "model"

    def encode(self, tokenizer, text):
        (self.folder / "text").write_text(text)
        return json.loads(self.run("tokenizer", "encode", tokenizer, "--text-file", "text", "--json"))["ids"]

    def expect(self, what, ours, theirs):
        if ours == theirs:
            return
        self.faults += 1
        print(f"  {what}: {ours!r} here, {theirs!r} in transformers")

    def tokenizer(self, name, spec, vocabulary):
        sizes = SIZES.format(vocabulary=vocabulary)
        model = self.train(name, model=sizes, objective="pretrain", data=f'tokenizer = "{spec}"\nsequence_length = 64')
        theirs = AutoTokenizer.from_pretrained(model)
        for text in TEXTS:
            ids = self.encode(spec, text)
            self.expect(text, ids, theirs(text).input_ids)
            if name.startswith(("byte", "json")):
                self.expect(text, text, theirs.decode(ids))
        info = json.loads(self.run("tokenizer", "info", model, "--json"))
        for token in ("eos", "pad", "bos"):
            known = info["eos" if token == "pad" else token]
            if known is not None:
                self.expect(token, known["id"], getattr(theirs, token + "_token_id"))
        if theirs.eos_token_id is None or theirs.pad_token_id is None or theirs.bos_token_id is None:
            self.expect("special tokens", "three", theirs.special_tokens_map)
        for template in ("chatml", "llama3", "qwen", "mistral", "gemma"):
            if template == "mistral" and name.endswith(".model"):
                continue  # it needs an eos_token, which is not found in the text
            chat = self.train(f"{name}-{template}", model=sizes, objective="sft",
                              data=f'tokenizer = "{spec}"\ntemplate = "{template}"\npeople_max = 2\nsequence_length = 2000')
            written = AutoTokenizer.from_pretrained(chat)
            rendered = written.apply_chat_template(MESSAGES, tokenize=False)
            self.expect(template, self.encode(spec, rendered), written(rendered, add_special_tokens=False).input_ids)
        print(f"{name:12} {len(theirs)} entries, eos {theirs.eos_token!r}")

    def reward_program(self):
        pairs = [{"prompt": f"{i} + 1 = ", "chosen": str(i + 1), "rejected": str(i)} for i in range(20)]
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
        self.train("reward", model=SIZES.format(vocabulary=256), objective="reward", source="pairs.jsonl",
                   data='template = "none"\nsequence_length = 64')
        section = (ROOT / "docs/post-training.md").read_text().split("### A reward model as the reward")[1]
        (self.folder / "score.py").write_text(re.search(r"```python\n(.*?)```", section, re.S).group(1))
        rows = [{"prompt": "1 + 1 = ", "response": text} for text in ("2", "3")]
        lines = "".join(json.dumps({**row, "row": {}}) + "\n" for row in rows)
        done = subprocess.run([sys.executable, "score.py"], cwd=self.folder, input=lines, capture_output=True, text=True)
        scores = [json.loads(line)["reward"] for line in done.stdout.splitlines()]
        self.expect("scores of docs/post-training.md", 2, len(scores))
        print(f"reward       scores {scores}{done.stderr[-500:] if len(scores) != 2 else ''}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip().splitlines()[-1])
    print(f"transformers {transformers.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        check = Check(sys.argv[1], folder)
        check.tokenizer("byte", "byte", 256)
        check.tokenizer("json", ROOT / "examples/demo-tokenizer.json", 406)
        for name, options in {"bpe": {}, "unigram": {"model_type": "unigram"},
                              "bytes": {"byte_fallback": True, "normalization_rule_name": "identity",
                                        "remove_extra_whitespaces": False}}.items():
            sentencepiece.SentencePieceTrainer.train(
                input=str(ROOT / "docs/numerics.md"), model_prefix=f"{folder}/{name}", vocab_size=1200, minloglevel=2,
                **{"model_type": "bpe", **options})
            check.tokenizer(f"{name}.model", f"{folder}/{name}.model", 1200)
        if importlib.util.find_spec("torch"):
            check.reward_program()
    print("all equal" if check.faults == 0 else f"{check.faults} differences")
    return check.faults > 0


if __name__ == "__main__":
    sys.exit(main())
