// Globs over scopes, the dotted module paths of a graph.
#pragma once

#include <string_view>

namespace mantissa::precision {

/// True if `pattern` matches `scope` or a dotted prefix of it: "model.layers.5" also matches
/// "model.layers.5.mlp.up_proj". policy.h (glob_match) describes the syntax.
bool scope_match(std::string_view pattern, std::string_view scope);

/// Throws ConfigError if `pattern` is empty, has an unbalanced bracket or brace, or contains a character that
/// no scope has.
void check_glob(std::string_view pattern);

}  // namespace mantissa::precision
