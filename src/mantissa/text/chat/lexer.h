// Splits a template into tokens: text, delimiters, and the words of expressions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/chat/error.h"

namespace mantissa::chat {

struct Token {
  enum class Type {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Type type = Type::end;
  std::string text = {};  // data, name, the unescaped string, or the operator
  std::int64_t integer = 0;
  double real = 0;
  Place place = {};

  bool is(Type t, std::string_view word) const { return type == t && text == word; }
  bool is_name(std::string_view word) const { return is(Type::name, word); }
  bool is_symbol(std::string_view word) const { return is(Type::symbol, word); }
};

/// Returns the tokens of a template, with an `end` token last. White space around blocks is removed as by
/// Jinja with trim_blocks and lstrip_blocks. `name` is the template's name in errors. Throws a TemplateError.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace mantissa::chat
