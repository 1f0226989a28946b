// The options that several commands share.
#pragma once

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {

// The policy (precision_of).
inline constexpr Option kPrecision = {"--precision", one, "NAME|LINE",
                                      "policy: a preset (bf16-mixed), an alias, or fields"};
inline constexpr Option kRules[] = {
    {"--rule", list, "RULE", "'SCOPE: field=value …', repeatable; later ones win"},
    {"--deepspeed", one, "FILE", "DeepSpeed JSON: policy, loss scale, batch, clipping, optimizer, schedule"},
};

inline constexpr Option kSet = {"--set", list, "KEY=VALUE", "set a key of the config to a value; repeatable"};
inline constexpr Option kAllowPrograms = {"--allow-programs",
                                          "let the programs run that the config names (rl.reward)"};
inline constexpr Option kTarget = {
    "--target", each, "HARDWARE",
    "also explain another machine: v100, a100, h100, tpu-v5e or FILE.toml; repeatable"};

// The machine (hardware_of).
inline constexpr Option kThreads = {"--threads", one, "N",
                                    "number of threads, 0 for all cores; changes no bit", "0"};
inline constexpr Option kHardware[] = {
    kThreads,
    {"--simd", one, "avx2|avx512|avx512_bf16|amx|amx-model|neon", "instruction set; changes no bit"},
    {"--device", one, "cpu", "device", "cpu"},
};

// What is printed.
inline constexpr Option kResults[] = {
    {"--json", "print only JSON on standard output"},
    {"--quiet", "print only errors and results"},
};

// Taken by every command.
inline constexpr Option kGeneral[] = {
    {"--color", one, "auto|always|never", "colours; auto: on a terminal without NO_COLOR", "auto"},
    {"--help", "print this help"},
};

// The model (model_of).
inline constexpr Option kBase = {
    "--base", one, "FORMAT",
    "hold the weights of linear layers in int8, nf4 or nf4-double, all frozen weights in f32, bf16 or "
    "f16 (not merge), or in the policy's formats (params); default: what the adapter was trained on"};
inline constexpr Option kAdapter[] = {
    {"--adapter", one, "DIR",
     "add the adapter of a run or of peft to the model, or RWKV-PEFT's file of states"},
    kBase,
};

// Draws of tokens.
inline constexpr Option kSampling[] = {
    {"--temperature", one, "T", "0: the most likely token", "0"},
    {"--top-k", one, "K", "draw from the K most likely tokens; 0: all", "0"},
    {"--top-p", one, "P", "draw from the smallest set of tokens with this probability", "1"},
    {"--min-p", one, "P", "draw from tokens with at least this share of the largest probability", "0"},
    {"--repetition-penalty", one, "R",
     "divide the positive logits of earlier tokens by R, and multiply the negative ones", "1"},
    {"--stop", each, "TEXT", "end before this text; repeatable"},
};
inline constexpr Option kSeed = {"--seed", one, "S", "seed of the draws", "1"};

// Files of data.
inline constexpr Option kData = {"--data", list, "FILES", "files and globs, or kk for held-out puzzles"};
/// Returns the option with the kinds of data files as its words, or only with those of text.
Option data_format(std::string_view name, std::string_view description, bool only_text = false);
inline constexpr Option kFields = {"--fields", one, "NAME=FIELD,…",
                                   "names of the fields in the files, as data.fields of a config: text=body, "
                                   "or text=title+body to join texts with a blank line"};
inline constexpr Option kIdType = {
    "--id-type", one, "auto|uint16|uint32",
    "type of the ids in token files without a header; auto: uint16 if the vocabulary is below 65,536",
    "auto"};

}  // namespace mantissa::cli
