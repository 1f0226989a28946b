"""RWKV-7 by its formulas (arXiv 2503.14456), token by token, in any dtype: the reference of golden_families.py. bench_peers.py also
compares with a recurrence in chunks. Weights have the names of flash-linear-attention, and the model the interface of transformers that the other references use."""
import json
import math
import types

import torch
from torch import nn
from torch.nn import functional

LOWEST_DECAY = -math.exp(-0.5)  # of the logarithms


class Config:
    model_type = "rwkv7"
    DEFAULTS = dict(vocab_size=29, hidden_size=24, num_hidden_layers=2, head_dim=8, num_heads=3, intermediate_size=40,
                    decay_low_rank_dim=4, a_low_rank_dim=6, v_low_rank_dim=3, gate_low_rank_dim=5, norm_eps=1e-5,
                    hidden_act="sqrelu", tie_word_embeddings=False)

    def __init__(self, **fields):
        self.fields = self.DEFAULTS | fields
        self.__dict__ |= self.fields

    def save_pretrained(self, directory):
        dtype = "bfloat16" if self.tie_word_embeddings else "float32"
        config = dict(architectures=["RWKV7ForCausalLM"], model_type="rwkv7", dtype=dtype) | self.fields
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def low_rank(width, rank, activation, bias=True):
    return nn.ModuleDict({"lora": nn.Sequential(nn.Linear(width, rank, bias=False), activation, nn.Linear(rank, width, bias=bias))})


def previous(x):
    """The token before each, zero before the first."""
    return functional.pad(x, (0, 0, 1, -1))


def by_token(r, w, k, v, removed, added):
    """The recurrence, token by token: S = S·diag(w) + (S·removed)·added' + v·k', y = S·r. All: [rows, length, heads, channels]."""
    rows, length, heads, channels = r.shape
    state, out = r.new_zeros(rows, heads, channels, channels), []  # [value, key]
    for t in range(length):
        erased = state @ removed[:, t, :, :, None]
        state = (state * w[:, t, :, None] + erased * added[:, t, :, None] + v[:, t, :, :, None] * k[:, t, :, None])
        out.append((state @ r[:, t, :, :, None])[..., 0])
    return torch.stack(out, 1)


def by_chunk(r, w, k, v, removed, added, size=32):
    """The same in chunks of `size` tokens, which must divide the length: matrix products within a chunk, as flash-linear-attention's
    kernels do them, and a step from chunk to chunk. With W the product of a chunk's decays up to a token, the state is diag(W)·U
    and U changes by sums, so the erased values e of a chunk solve a triangular system."""
    rows, length, heads, channels = r.shape
    split = lambda x: x.reshape(rows, length // size, size, heads, channels).transpose(2, 3)  # [rows, chunk, heads, size, channels]
    r, w, k, v, removed, added = (split(x) for x in (r, w, k, v, removed, added))
    log = torch.log(w)
    up_to = torch.cumsum(log, -2)
    decay, grow = torch.exp(up_to), torch.exp(-up_to)
    reads, erases, writes, adds = r * decay, removed * torch.exp(up_to - log), k * grow, added * grow
    from_added, from_written = erases @ adds.mT, erases @ writes.mT
    inverse_of = torch.eye(size, dtype=r.dtype) - torch.tril(from_added, -1)
    both = torch.cat((erases, torch.tril(from_written, -1) @ v), -1)
    solved = torch.linalg.solve_triangular(inverse_of, both, upper=False, unitriangular=True)
    of_state, of_values = solved.split(channels, -1)
    # y = reads·U + tril(reads·adds')·e + tril(reads·writes')·v, with e = of_state·U + of_values
    read_added = torch.tril(reads @ adds.mT)
    y_of_state = reads + read_added @ of_state
    y_of_values = read_added @ of_values + torch.tril(reads @ writes.mT) @ v
    end = decay[..., -1:, :].mT  # of the chunk, a column
    step = (adds.mT @ of_state, adds.mT @ of_values + writes.mT @ v)
    state, before = r.new_zeros(rows, heads, channels, channels), []  # [key, value]
    for chunk in range(length // size):
        before.append(state)
        state = end[:, chunk] * (state + step[0][:, chunk] @ state + step[1][:, chunk])
    y = y_of_state @ torch.stack(before, 1) + y_of_values
    return y.transpose(2, 3).reshape(rows, length, heads, channels)


class TimeMixing(nn.Module):
    recurrence = staticmethod(by_token)

    def __init__(self, c, layer):
        super().__init__()
        width, self.heads, self.layer = c.hidden_size, c.hidden_size // c.head_dim, layer
        for name in "rwkvag":
            setattr(self, "x_" + name, nn.Parameter(torch.empty(1, 1, width)))
        self.k_k, self.k_a = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))
        self.r_k = nn.Parameter(torch.empty(self.heads, c.head_dim))
        for name in "rkvo":
            setattr(self, name + "_proj", nn.Linear(width, width, bias=False))
        self.w_lora = low_rank(width, c.decay_low_rank_dim, nn.Tanh())
        self.a_lora = low_rank(width, c.a_low_rank_dim, nn.Identity())
        self.g_lora = low_rank(width, c.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        if layer > 0:
            self.v_lora = low_rank(width, c.v_low_rank_dim, nn.Identity())
        self.g_norm = nn.GroupNorm(self.heads, width, eps=c.head_dim * c.norm_eps)

    def forward(self, x, first_values):
        rows, length, width = x.shape
        step = previous(x) - x
        of = {name: x + step * getattr(self, "x_" + name) for name in "rwkvag"}
        heads = lambda y: y.reshape(rows, length, self.heads, -1)
        r, k, v = self.r_proj(of["r"]), self.k_proj(of["k"]), self.v_proj(of["v"])
        if self.layer == 0:
            first_values = v
        else:
            v = v + (first_values - v) * torch.sigmoid(self.v_lora["lora"](of["v"]))
        w = torch.exp(LOWEST_DECAY * torch.sigmoid(self.w_lora["lora"](of["w"])).to(x.dtype))
        a = torch.sigmoid(self.a_lora["lora"](of["a"]))
        unit = functional.normalize(heads(k * self.k_k), dim=-1, eps=1e-12)
        k = k * (1 + (a - 1) * self.k_a)
        r, w, k, v, a = (heads(y) for y in (r, w, k, v, a))
        y = self.mix(r, w, k, v, -unit, unit * a)
        y = self.g_norm(y.reshape(rows * length, width)).reshape(rows, length, width)
        y = y + ((r * k * self.r_k).sum(-1, keepdim=True) * v).reshape(rows, length, width)
        return self.o_proj(y * self.g_lora["lora"](of["g"])), first_values

    def mix(self, r, w, k, v, removed, added):
        """The recurrence, under autocast too in the parameters' format."""
        with torch.autocast("cpu", enabled=False):
            return self.recurrence(*(x.to(self.k_k.dtype) for x in (r, w, k, v, removed, added)))


class ChannelMixing(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.x_k = nn.Parameter(torch.empty(c.hidden_size))
        self.key = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.value = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.value(torch.relu(self.key(x + (previous(x) - x) * self.x_k)) ** 2)


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        norm = lambda: nn.LayerNorm(c.hidden_size, eps=c.norm_eps)
        if layer == 0:
            self.pre_norm = norm()
        self.attn_norm, self.ffn_norm = norm(), norm()
        self.attn, self.ffn = TimeMixing(c, layer), ChannelMixing(c)

    def forward(self, x, first_values):
        x = self.pre_norm(x) if hasattr(self, "pre_norm") else x
        mixed, first_values = self.attn(self.attn_norm(x), first_values)
        x = x + mixed
        return x + self.ffn(self.ffn_norm(x)), first_values


class Rwkv7(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict({"embeddings": nn.Embedding(config.vocab_size, config.hidden_size),
                                    "layers": nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers)),
                                    "norm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps)})
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model["embeddings"].weight

    def forward(self, input_ids):
        x, first_values = self.model["embeddings"](input_ids), None
        for block in self.model["layers"]:
            x, first_values = block(x, first_values)
        return types.SimpleNamespace(logits=self.lm_head(self.model["norm"](x)))


class OtherOrder:
    """Adds the terms of linear layers in the opposite order."""

    def __enter__(self):
        self.linear = functional.linear
        functional.linear = lambda x, weight, bias=None: self.linear(x.flip(-1), weight.flip(-1), bias)

    def __exit__(self, *_):
        functional.linear = self.linear


def make(config, seed=5, form=torch.float32):
    """Returns an f32 model whose weights are random numbers representable in `form`: decays from almost none to the largest,
    gains around 1, mixtures in [0, 1]."""
    torch.manual_seed(seed)
    model = Rwkv7(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            last = name.rsplit(".", 1)[-1]
            if last.startswith("x_"):
                noise = torch.rand_like(p)
            elif "w_lora" in name and last == "bias":
                noise = 4 * torch.randn_like(p)
            elif last in ("k_k", "k_a") or ("norm" in name and last == "weight"):
                noise = 1 + 0.3 * torch.randn_like(p)
            elif p.dim() == 2 and last == "weight":
                noise = torch.randn_like(p) * (1 if "embeddings" in name else p.shape[1] ** -0.5)
            else:
                noise = 0.3 * torch.randn_like(p)
            p.copy_(noise.to(form))
    return model
