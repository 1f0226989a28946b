// The words of a training text, counted by several threads.
#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "mantissa/text/tokenizer/pre_tokenizers.h"
#include "mantissa/text/tokenizer/train.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

struct HashText {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Counts = std::unordered_map<std::string, std::int64_t, HashText, std::equal_to<>>;

void count_lines(std::string_view bytes, const PreTokenizer& words, Counts& counts) {
  MatchMemory memory;
  std::string repaired;
  std::string_view text = repair_utf8(bytes, repaired);
  const auto count = [&](const Piece& piece) {
    const auto found = counts.find(piece.text);
    if (found != counts.end()) {
      ++found->second;
    } else {
      counts.emplace(piece.text, 1);
    }
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    words.split({text.substr(0, end), 1}, memory, count);
    text.remove_prefix(end);
  }
}

/// Splits the text at ends of lines into about `parts` parts.
std::vector<std::string_view> parts_of(std::string_view text, std::size_t parts) {
  std::vector<std::string_view> all;
  const std::size_t size = text.size() / std::max<std::size_t>(parts, 1) + 1;
  while (!text.empty()) {
    const std::size_t end =
        size >= text.size() ? text.size() : std::min(text.find('\n', size), text.size() - 1) + 1;
    all.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return all;
}

}  // namespace

void count_words(std::string_view text, int threads, WordCounts& counts) {
  const nlohmann::json pattern = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const std::unique_ptr<PreTokenizer> words = read_pre_tokenizer(JsonView(pattern, "words"));
  words->leave_bytes();
  const std::size_t most =
      threads > 0 ? static_cast<std::size_t>(threads) : std::max(1U, std::thread::hardware_concurrency());
  const std::vector<std::string_view> parts = parts_of(text, most);
  std::vector<Counts> of_part(parts.size());
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      workers.emplace_back([&, i] {
        try {
          count_lines(parts[i], *words, of_part[i]);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failure = std::current_exception();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  for (const Counts& part : of_part) {
    for (const auto& [word, count] : part) counts[word] += count;
  }
}

}  // namespace mantissa::tokenizer
