#include "mantissa/text/tokenizer/fingerprint.h"

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/core/base/error.h"

namespace mantissa::tokenizer {
namespace {

/// FNV-1a of 64 bits.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
    add_number(bytes.size());
  }
  void add_number(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(number >> shift));
  }
  std::uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// Returns the spelling of an id, or its text if it has none, as the ids of bytes.
std::string spelling(const Tokenizer& tokenizer, std::int32_t id) {
  if (std::optional<std::string> token = tokenizer.token_of(id)) return *token;
  return tokenizer.known(id) ? tokenizer.decode({&id, 1}) : std::string();
}

}  // namespace

std::uint64_t fingerprint(const Tokenizer& tokenizer) {
  Hash hash;
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id)
    hash.add(spelling(tokenizer, static_cast<std::int32_t>(id)));
  try {
    hash.add_number(static_cast<std::uint64_t>(tokenizer.separator()));
  } catch (const ConfigError&) {  // a tokenizer may have none
  }
  return hash.value();
}

}  // namespace mantissa::tokenizer
