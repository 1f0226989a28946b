#include "mantissa/generate/eval/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/generate/eval/passages.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/byte_reader.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::eval {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr const char* kHaystack =
    "The grass by the river was still wet when the boats came in. Two men carried the nets up to the wall "
    "and hung them in the wind. A dog slept under the cart, and nobody woke it. Later the market opened, and "
    "the street filled with people who had come from the villages on the hill. They sold apples, candles and "
    "cloth, and talked about the weather. In the evening the lamps were lit along the water. ";

constexpr std::array<const char*, 12> kCities{"Berlin", "Lisbon", "Nairobi", "Lima",   "Oslo",   "Kyoto",
                                              "Dublin", "Havana", "Cairo",   "Prague", "Sydney", "Quito"};

void append(Ids& ids, std::span<const std::int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

/// Returns the number of the first `most` ids after whose last sentence the needle goes.
std::size_t sentence_before(const tokenizer::Tokenizer& tokenizer, const Ids& hay, std::size_t most) {
  constexpr std::size_t kLook = 200;
  for (std::size_t n = most; n > 0 && most - n < kLook; --n) {
    const std::string token = tokenizer.decode(std::span(hay).subspan(n - 1, 1));
    if (token.ends_with('.') || token.ends_with('\n')) return n;
  }
  return most;
}

/// Returns the first run of digits of `text`.
std::string first_number(const std::string& text) {
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

void check_needles(const NeedleOptions& o, std::int64_t positions) {
  constexpr std::int64_t kMostTrials = 1000;
  if (o.lengths.empty() || o.depths.empty()) throw ConfigError("--needle: requires lengths and depths");
  for (const std::int64_t length : o.lengths) {
    if (length < 1 || (positions > 0 && length > positions))
      throw ConfigError(
          "--lengths {}: must be between 1 and the model's positions, {} (max_position_embeddings)", length,
          positions);
  }
  for (const double depth : o.depths) {
    if (!(depth >= 0 && depth <= 1)) throw ConfigError("--depths {}: must be between 0 and 1", depth);
  }
  if (o.trials < 1 || o.trials > kMostTrials)
    throw ConfigError("--trials {}: must be between 1 and {}", o.trials, kMostTrials);
}

}  // namespace

double NeedleResult::accuracy() const {
  double right = 0, trials = 0;
  for (const NeedleCell& cell : cells) {
    right += static_cast<double>(cell.right);
    trials += static_cast<double>(cell.trials);
  }
  return trials > 0 ? right / trials : 0;
}

NeedlePrompt needle_prompt(const tokenizer::Tokenizer& tokenizer, const std::string& haystack,
                           std::int64_t length, double depth, std::uint64_t seed, std::int64_t trial) {
  constexpr std::uint32_t kSmallest = 1'000'000, kNumbers = 9'000'000;  // seven digits
  const RandomStream random(seed, RandomUse::data, hash_name("needle"), static_cast<std::uint64_t>(trial));
  const char* city = kCities[random.bits(0) % kCities.size()];
  NeedlePrompt prompt;
  prompt.number = std::to_string(kSmallest + random.bits(1) % kNumbers);
  const Ids start = tokens_before(tokenizer, haystack),
            needle =
                tokenizer.encode(fmt::format(" The special magic {} number is: {}.", city, prompt.number)),
            question = tokenizer.encode(
                fmt::format("\n\nQuestion: What is the special magic {} number? Answer: The special magic {} "
                            "number is:",
                            city, city));
  const std::int64_t room = length - std::ssize(start) - std::ssize(needle) - std::ssize(question);
  if (room < 0) {
    throw ConfigError("--lengths {}: needle and question alone have {} tokens; give a larger length", length,
                      length - room);
  }
  Ids hay = tokenizer.encode(haystack);
  if (hay.empty()) throw ConfigError("--haystack: the text has no tokens");
  const Ids once = hay;
  while (std::ssize(hay) < room) append(hay, once);
  hay.resize(static_cast<std::size_t>(room));
  const auto wanted = static_cast<std::size_t>(std::floor(depth * static_cast<double>(room)));
  const std::size_t at = sentence_before(tokenizer, hay, wanted);
  prompt.ids = start;
  append(prompt.ids, std::span(hay).first(at));
  append(prompt.ids, needle);
  append(prompt.ids, std::span(hay).subspan(at));
  append(prompt.ids, question);
  return prompt;
}

NeedleResult find_needles(const weights::ModelSource& source, const precision::Policy& policy,
                          const NeedleOptions& o, const runtime::Device& device, const std::stop_token& stop,
                          comm::Communicator* ranks) {
  constexpr std::int64_t kStreams = 16;
  rollout::GenerateOptions generate;
  generate.max_new_tokens = 16;
  generate.interrupt = stop;
  generate.stop = rollout::stop_ids(source);
  const std::int64_t positions = source.config.max_position_embeddings;
  check_needles(o, positions > 0 ? positions - generate.max_new_tokens : 0);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = data::tokenizer_of(source);
  if (tokenizer == nullptr) {
    throw ConfigError("--needle: {}. Fix: use a model with its tokenizer, because the haystack is text",
                      data::why_no_tokenizer(source));
  }
  const std::string haystack = o.haystack.empty() ? kHaystack : text::read_all_bytes(o.haystack);
  NeedleResult result;
  for (const std::int64_t length : o.lengths) {
    std::vector<rollout::Request> requests;
    std::vector<std::string> numbers;
    std::vector<NeedleCell> cells;
    for (std::size_t d = 0; d < o.depths.size(); ++d) {
      cells.push_back({length, o.depths[d], o.trials, 0});
      for (std::int64_t trial = 0; trial < o.trials; ++trial) {
        const std::int64_t number = static_cast<std::int64_t>(d) * o.trials + trial;
        NeedlePrompt prompt = needle_prompt(*tokenizer, haystack, length, o.depths[d], o.seed, number);
        text::check_known_ids(prompt.ids, *tokenizer, source.config.vocab_size, "--needle");
        requests.push_back({std::move(prompt.ids), 0});
        numbers.push_back(std::move(prompt.number));
      }
    }
    const std::vector<rollout::Generation> answers =
        rollout::complete(source, policy, requests, generate, kStreams, device, ranks);
    if (!std::ranges::all_of(answers, &rollout::Generation::ended)) {
      result.interrupted = true;
      return result;
    }
    for (std::size_t r = 0; r < answers.size(); ++r) {
      Ids ids = answers[r].ids;
      std::erase_if(ids, [&](std::int32_t id) { return !tokenizer->known(id); });
      cells[r / static_cast<std::size_t>(o.trials)].right +=
          first_number(tokenizer->decode(ids)) == numbers[r] ? 1 : 0;
    }
    result.cells.insert(result.cells.end(), cells.begin(), cells.end());
  }
  return result;
}

}  // namespace mantissa::eval
