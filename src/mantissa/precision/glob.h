// Globs over scopes, the dotted module paths of a graph.
#pragma once

#include <string_view>

namespace mantissa::precision {

/// Whether `pattern` matches `scope` or a dotted prefix of it, so that "model.layers.5" also speaks of
/// "model.layers.5.mlp.up_proj". Syntax as glob_match (policy.h).
bool scope_match(std::string_view pattern, std::string_view scope);

/// Throws ConfigError where `pattern` is empty, has an unbalanced bracket or brace, or a character that no
/// scope has.
void check_glob(std::string_view pattern);

}  // namespace mantissa::precision
