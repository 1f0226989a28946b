// Structure-aware mutation. An input is parsed to its records, one record changes, and the input is written
// again with the lengths, offsets and checksums that its format needs, so that mutants reach the code behind
// the first checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Changes `size` bytes in place, to at most `most`, and returns their number: of libFuzzer, or of
/// replay.cpp.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace mantissa::fuzz {

/// Random choices. The same seed gives the same mutant.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  /// Returns a number below `n`, or 0 if `n` is 0.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : engine_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::minstd_rand engine_;
};

/// Changes bytes without regard to a structure, with the words of the target's dictionary.
std::string mutate_bytes(std::string bytes, std::size_t most = 256);
/// The same without changing their number.
void mutate_in_place(std::string& bytes);

/// Changes the list: removes, repeats or exchanges elements, or calls `change` for one of them.
template <class T, class Change>
void mutate_list(std::vector<T>& list, Random& random, Change change) {
  if (list.empty()) return;
  const std::size_t i = random.below(list.size()), j = random.below(list.size());
  switch (random.below(8)) {
    case 0:
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    case 1: {
      T copy = list[i];
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(j), std::move(copy));
      return;
    }
    case 2:
      std::swap(list[i], list[j]);
      return;
    default:
      change(list[i]);
  }
}

/// Little-endian integers in bytes. take() returns null, and leaves `bytes`, if there are too few.
template <class T>
std::optional<T> take(std::string_view& bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value |
                           static_cast<T>(static_cast<T>(static_cast<std::uint8_t>(bytes[i])) << (8 * i)));
  bytes.remove_prefix(sizeof(T));
  return value;
}
template <class T>
void put(std::string& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes += static_cast<char>(static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * i)));
}
/// Removes the first `size` bytes and returns them, or null if there are fewer.
std::optional<std::string> take_bytes(std::string_view& bytes, std::uint64_t size);

/// Returns a mutant of an input of some format, or null if `input` does not have it.
using Mutator = std::optional<std::string> (*)(std::string_view input, Random& random);
std::optional<std::string> mutate_json(std::string_view input, Random& random);
std::optional<std::string> mutate_json_lines(std::string_view input, Random& random);
std::optional<std::string> mutate_safetensors(std::string_view input, Random& random);
std::optional<std::string> mutate_gguf(std::string_view input, Random& random);
std::optional<std::string> mutate_pickle(std::string_view input, Random& random);
std::optional<std::string> mutate_pth(std::string_view input, Random& random);
std::optional<std::string> mutate_protobuf(std::string_view input, Random& random);
std::optional<std::string> mutate_tokens(std::string_view input, Random& random);
std::optional<std::string> mutate_binidx(std::string_view input, Random& random);
std::optional<std::string> mutate_stream(std::string_view input, Random& random);
std::optional<std::string> mutate_bundle(std::string_view input, Random& random);

/// Changes the `size` bytes of `data` as `mutator` does, to at most `most`, and returns their number. One
/// mutant of eight, those of inputs in other formats, and all if `mutator` is null, ignore the format.
std::size_t mutate_input(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed,
                         Mutator mutator);

}  // namespace mantissa::fuzz
