// The bytes of a pickle, read in order.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/files/io/pth/bytes.h"
#include "mantissa/files/io/pth/failure.h"

namespace mantissa::io::pth {

class PickleBytes {
 protected:
  PickleBytes(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  /// Throws FileError: the file, `what`.
  [[noreturn]] void fail(const std::string& what) const { fail_file(where_, what); }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("its pickle is truncated");
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return taken;
  }

  template <class T>
  T number() {
    const std::string_view taken = take(sizeof(T));
    return load<T>(std::as_bytes(std::span(taken)), 0);
  }

  std::string_view line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const std::string_view found = take(std::min(rest.find('\n'), rest.size()));
    take(1);
    return found;
  }

  std::uint32_t index_in_line() {
    const std::string_view digits = line();
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail("its pickle has a memo without a number");
    return index;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace mantissa::io::pth
