// Globs over scopes, the dotted module paths of a graph.
#pragma once

#include <string_view>

namespace mantissa::precision {

/// True if `pattern` matches `scope` or a dotted prefix of it: "model.layers.5" also matches
/// "model.layers.5.mlp.up_proj". policy.h (glob_match) describes the syntax.
bool scope_match(std::string_view pattern, std::string_view scope);

/// True if `pattern` matches the name of a parameter, "model.layers.0.attn.k_k", and its last word by more
/// than a `*`: "*.attn.k_k", "*.attn.x_?" and "model.norm.bias" do, "*.attn.*" does not, because it means the
/// modules below. A `*` matches no part of the words "weight" and "bias", which nearly all modules have.
bool tensor_match(std::string_view pattern, std::string_view name);

/// Returns the scope that addresses parameter `name`, or all parameters of its module if each of these has a
/// name that many modules use: "model.norm" for "model.norm.weight", "model.layers.0.attn.k_k" for itself.
std::string_view rule_scope(std::string_view name);

/// Throws ConfigError if `pattern` is empty, has an unbalanced bracket or brace, or contains a character that
/// no scope has.
void check_glob(std::string_view pattern);

}  // namespace mantissa::precision
