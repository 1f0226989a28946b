// Reads the recipes of formats with scales of Transformer Engine and torchao.
//
// Sources: transformer_engine/common/recipe/__init__.py, torchao/float8/config.py and
// torchao/prototype/moe_training/config.py of August 2026.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/compat/foreign.h"

namespace mantissa::compat {

/// The rule under which weight gradients multiply in bf16.
inline constexpr std::string_view kWeightGradientsInBf16 = "*: op=matmul.dw compute=bf16";
/// The fields of DeepSeek-V3's scales.
inline constexpr std::string_view kSquaresOf128 = "weight_block=128x128 activation_block=1x128";

/// What a recipe adds to a policy that computes in 16 bits.
struct Recipe {
  std::string fields;
  std::vector<std::string> rules = {};
  std::vector<std::string> notes = {};
};

/// Returns the policy line `base` with what the recipe adds.
Foreign on(std::string base, Recipe recipe);

/// e4m3, with gradients in e5m2 if `hybrid`, under tensor scales; `scaling` is empty or fields that follow.
Recipe recipe_of_tensors(bool hybrid, std::string_view scaling);
/// mxfp8 whose scales round by `rule`, NVIDIA's unless given; `shared` is empty or the fields that say what
/// shares them.
Recipe recipe_of_mxfp8(bool hybrid, std::string_view shared = {}, std::string_view rule = "rceil");
Recipe recipe_of_nvfp4(bool squares, bool stochastic, bool hadamard);
/// Throws ConfigError for a name that torchao does not have.
Recipe recipe_of_torchao(std::string_view name);

/// Translates a call of one of Transformer Engine's recipes, such as DelayedScaling(margin=0, …), of
/// torchao's Float8LinearConfig(…) or MXFP8TrainingOpConfig(…), or of its from_recipe_name("rowwise").
/// Returns null for another function. Throws ConfigError for a recipe that no policy expresses.
std::optional<Foreign> recipe_of_call(std::string_view function, std::string_view arguments);

/// Translates the name of a recipe: "float8_rowwise", "mxfp8_rceil", "NVFP4BlockScaling". Returns null for
/// another word.
std::optional<Foreign> recipe_of_word(std::string_view word);

/// Returns the names of recipes, for suggestions.
std::vector<std::string> recipe_words();

}  // namespace mantissa::compat
