#!/usr/bin/env python3
"""Golden values of supervised fine-tuning, in tests/golden/sft/.

Two small tokenizers (byte-level, and one that changes the text as Llama 2's does), conversations under several templates with
the ids and the assistant mask that transformers gives, and one step of a small random Llama over some of the rows: the loss and
the gradients in f64, with the labels of masked tokens -100. Needs torch, transformers, tokenizers and safetensors.

usage: tools/golden_sft.py [OUT] [--only byte_level|llama|step]

--only writes one tokenizer and its rows of rows.jsonl, or the step with its model.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from golden import arguments

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]

# The text of each pair is the same; the second has no generation blocks, as most models' templates.
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
          "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
INST = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{% generation %}{{ ' ' + m['content'] | trim + eos_token }}{% endgeneration %}"
        "{% else %}{{ raise_exception('no system message') }}{% endif %}{% endfor %}")
# Without special tokens, a token may cross the border of an answer.
PLAIN = ("{% for m in messages %}{% if m['role'] == 'assistant' %}{{ 'A:' }}{% generation %}{{ m['content'] }}{% endgeneration %}"
         "{% else %}{{ 'Q:' + m['content'] }}{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'A:' }}{% endif %}")


def without_blocks(template: str) -> str:
    return template.replace("{% generation %}", "").replace("{% endgeneration %}", "")


TOKENIZERS = ("byte_level", "llama")
TEMPLATES = {"chatml": CHATML, "chatml_own": without_blocks(CHATML), "inst": INST, "inst_own": without_blocks(INST),
             "plain": PLAIN}

CONVERSATIONS = [
    [("user", "Who is a knight?"), ("assistant", "Zoey is a knight.")],
    [("user", "Hi"), ("assistant", " Hello there "), ("user", "and now?"), ("assistant", "now, a longer answer\nof two lines")],
    [("user", "ça va? 😀"), ("assistant", "très bien 😀😀, merci")],
    [("user", "the end of a question is the "), ("assistant", "the answer"), ("user", "the"), ("assistant", "😀")],
    [("system", "Be brief."), ("user", "1 + 1"), ("assistant", "2"), ("user", "2 + 2"), ("assistant", "4")],
    [("user", "a question without an answer")],
]

CORPUS = ["Who is a knight? Zoey is a knight. the answer of the question is the end of the other there then they",
          "now and now, a longer answer of two lines; Hello there, Hi. Be brief. user assistant system\n", "A: the Q: the ça va très bien 😀"] * 4


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def llama() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL + [f"<0x{b:02X}>" for b in range(256)], show_progress=False)
    tokenizer.train_from_iterator([tokenizer.normalizer.normalize_str(text) for text in CORPUS], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return tokenizer


def masked(tokenizer, name, messages):
    """Returns the ids and the mask of one conversation, or None if the template rejects it."""
    template = TEMPLATES[name.removesuffix("_own")]
    try:
        out = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=True)
    except Exception:  # raised by the template
        return None
    text = tokenizer.apply_chat_template(messages, chat_template=TEMPLATES[name], tokenize=False)
    return {"ids": out["input_ids"], "mask": out["assistant_masks"], "text": text}


def read_rows(out: pathlib.Path, kind):
    with open(out / "rows.jsonl") as f:
        return [row for row in map(json.loads, f) if row["tokenizer"] == kind]


def write_texts(out: pathlib.Path, only):
    rows = []
    for kind, make in zip(TOKENIZERS, (byte_level, llama)):
        if only not in (None, kind):
            rows += read_rows(out, kind)
            continue
        folder = out / kind
        folder.mkdir(parents=True, exist_ok=True)
        fast = PreTrainedTokenizerFast(tokenizer_object=make(), bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                       clean_up_tokenization_spaces=False)
        fast.save_pretrained(folder)
        for path in folder.iterdir():
            if path.name not in ("tokenizer.json", "tokenizer_config.json"):
                path.unlink()
        for name in TEMPLATES:
            for conversation in CONVERSATIONS:
                # transformers' mask has only the first token of a last character that has several.
                if name == "plain" and any(content.endswith("😀") for _, content in conversation):
                    continue
                messages = [{"role": role, "content": content} for role, content in conversation]
                result = masked(fast, name, messages)
                if result is not None:
                    rows.append({"tokenizer": kind, "template": name, "messages": messages, **result})
    with open(out / "rows.jsonl", "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
    if only is None:
        (out / "templates.json").write_text(json.dumps(TEMPLATES, indent=1) + "\n")


def write_step(out: pathlib.Path):
    torch.manual_seed(19)
    config = LlamaConfig(vocab_size=368, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, initializer_range=0.2)
    model = LlamaForCausalLM(config).float()
    folder = out / "model"
    model.save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    model = model.double()
    step = [r for r in read_rows(out, "byte_level") if r["template"] == "chatml" and any(r["mask"])][:4]
    total = sum(sum(r["mask"][1:]) for r in step)
    loss = 0
    for r in step:  # each row alone: no padding, and the mean over the tokens of all rows
        ids = torch.tensor([r["ids"]])
        labels = torch.tensor([[i if m else -100 for i, m in zip(r["ids"], r["mask"])]])
        logits = model(ids).logits
        loss = loss + torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum") / total
    loss.backward()
    tensors = {"grad." + name: p.grad.float().contiguous() for name, p in model.named_parameters()}
    tensors["loss"] = loss.detach().reshape(1)
    save_file(tensors, out / "step.safetensors")
    with open(out / "step.jsonl", "w") as f:
        for r in step:
            f.write(json.dumps({"messages": r["messages"]}) + "\n")


if __name__ == "__main__":
    place, only = arguments(__doc__, "sft", (*TOKENIZERS, "step"))
    place.mkdir(parents=True, exist_ok=True)
    if only != "step":
        write_texts(place, only)
    if only in (None, "step"):
        write_step(place)
