#include "mantissa/files/gguf/value.h"

#include <charconv>

namespace mantissa::gguf {

double shortest(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  double result = static_cast<double>(value);
  std::from_chars(text, end.ptr, result);
  return result;
}

}  // namespace mantissa::gguf
