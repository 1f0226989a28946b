// How names of formats and cards are compared.
#pragma once

#include <algorithm>
#include <string_view>

namespace mantissa {

/// True if `text` is `name`, which is in lower case, in any letter case.
inline bool is_same_name(std::string_view text, std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(text, name, {}, lower);
}

}  // namespace mantissa
