#include "mantissa/data/shard_tokenizer.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/text/shard_header.h"
#include "mantissa/tokenizer/fingerprint.h"

namespace mantissa::data {
namespace {

/// A tokenizer as shards know it.
struct Known {
  std::string name;
  std::uint64_t fingerprint = 0;
  std::int64_t vocabulary = 0;
};

/// Returns the origin of the first token file that states it, or null.
std::optional<text::ShardOrigin> first_origin(const std::vector<std::string>& files,
                                              const std::string& format) {
  for (const std::string& path : text::expand_files(files)) {
    if (text::format_of(path, format) != "tokens") continue;
    if (std::optional<text::ShardOrigin> origin = text::shard_origin(path)) return origin;
  }
  return std::nullopt;
}

bool fits(const text::ShardOrigin& shard, const Known& own) {
  return shard.fingerprint == 0 ? shard.vocabulary == own.vocabulary : shard.fingerprint == own.fingerprint;
}

}  // namespace

void check_shards(const std::vector<std::string>& files, const text::FileFormat& format,
                  const std::function<std::unique_ptr<tokenizer::Tokenizer>()>& tokenizer,
                  const std::string& key) {
  std::optional<Known> own;
  for (const std::string& path : text::expand_files(files)) {
    if (text::format_of(path, format.name) != "tokens") continue;
    const std::optional<text::ShardOrigin> shard = text::shard_origin(path);
    if (!shard) continue;
    if (!own) {
      const std::unique_ptr<tokenizer::Tokenizer> made = tokenizer();
      if (made == nullptr) return;
      own = {made->name(), tokenizer::fingerprint(*made), made->vocabulary()};
    }
    if (fits(*shard, *own)) continue;
    const std::string name =
        shard->tokenizer.empty() ? "another tokenizer" : fmt::format("\"{}\"", shard->tokenizer);
    throw ConfigError(
        fmt::format("\"{0}\": expected ids of {1} = \"{2}\" ({3} entries), got ids of {4} ({5} entries). "
                    "Fix: set {1} to the tokenizer of the shards, or write them again with `mantissa data "
                    "shard --tokenizer {2}`",
                    path, key, own->name, own->vocabulary, name, shard->vocabulary));
  }
}

bool shards_state_tokenizer(const std::vector<std::string>& files, const std::string& format) {
  return first_origin(files, format).has_value();
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of_shards(const std::vector<std::string>& files,
                                                          const std::string& format) {
  const std::optional<text::ShardOrigin> origin = first_origin(files, format);
  if (!origin || origin->tokenizer.empty()) return nullptr;
  try {
    std::unique_ptr<tokenizer::Tokenizer> named = make_tokenizer(origin->tokenizer);
    return tokenizer::fingerprint(*named) == origin->fingerprint ? std::move(named) : nullptr;
  } catch (const Error&) {
    return nullptr;  // the shards may come from another machine
  }
}

}  // namespace mantissa::data
