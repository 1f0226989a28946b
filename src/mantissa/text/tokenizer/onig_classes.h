// The named classes of Oniguruma as items of a PCRE2 class.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// The inside of a class, without brackets.
struct ClassItems {
  std::string text;
  bool negated = false;   // the code points that `text` does not contain
  bool one_case = false;  // letters of one case, such as \p{Lu}
};

/// Returns a code point as an item.
std::string class_item(char32_t point);
/// Returns the class of \s, \w, \d or \h; upper case negates it.
ClassItems shorthand(char letter);
/// Returns the class of \p{name}: a general category, a POSIX name or a script. Throws std::invalid_argument.
ClassItems property(std::string_view name);
/// Returns the class of [:name:]. Throws std::invalid_argument.
ClassItems posix_class(std::string_view name);

}  // namespace mantissa::tokenizer
