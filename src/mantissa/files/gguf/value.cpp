#include "mantissa/files/gguf/value.h"

#include <charconv>
#include <type_traits>

namespace mantissa::gguf {

std::size_t size_of(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::size_t {
        using T = std::decay_t<decltype(v)>;
        constexpr bool list =
            std::is_same_v<T, Integers> || std::is_same_v<T, Numbers> || std::is_same_v<T, Texts>;
        if constexpr (list) {
          return v.size();
        } else {
          return 1;
        }
      },
      value);
}

double shortest(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  double result = static_cast<double>(value);
  std::from_chars(text, end.ptr, result);
  return result;
}

}  // namespace mantissa::gguf
