#include "mantissa/setup/data/shard_tokenizer.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/shard_header.h"
#include "mantissa/text/tokenizer/fingerprint.h"

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

constexpr const char* kOtherContents = "; the names are equal, but the contents of the tokenizers differ";

std::string name_of(const std::string& tokenizer, std::int64_t vocabulary) {
  return fmt::format("{} ({} entries)",
                     tokenizer.empty() ? "another tokenizer" : fmt::format("\"{}\"", tokenizer), vocabulary);
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
    const bool same_name = shard->tokenizer == own->name && shard->vocabulary == own->vocabulary;
    throw ConfigError(
        "\"{0}\": expected ids of {1} = {2}, got ids of {3}{4}. Fix: {5}, or write them again "
        "with `mantissa data shard FILES --tokenizer {6} --out DIR`",
        path, key, name_of(own->name, own->vocabulary), name_of(shard->tokenizer, shard->vocabulary),
        same_name ? kOtherContents : "",
        same_name ? "restore the tokenizer of the shards"
                  : fmt::format("set {} to the tokenizer of the shards", key),
        own->name);
  }
}

bool shards_state_tokenizer(const std::vector<std::string>& files, const std::string& format) {
  return first_origin(files, format).has_value();
}

StatedTokenizer tokenizer_of_shards(const std::vector<std::string>& files, const std::string& format) {
  std::optional<text::ShardOrigin> first;
  std::string first_path;
  for (const std::string& path : text::expand_files(files)) {
    if (text::format_of(path, format) != "tokens") continue;
    const std::optional<text::ShardOrigin> origin = text::shard_origin(path);
    if (!origin) continue;
    if (!first) {
      first = origin;
      first_path = path;
    } else if (!fits(*origin, {first->tokenizer, first->fingerprint, first->vocabulary})) {
      throw ConfigError(
          "\"{}\": expected ids of {}, as in \"{}\", got ids of {}{}. Fix: give the shards of one "
          "tokenizer, or write them again with `mantissa data shard FILES --tokenizer T --out DIR`",
          path, name_of(first->tokenizer, first->vocabulary), first_path,
          name_of(origin->tokenizer, origin->vocabulary),
          origin->tokenizer == first->tokenizer && origin->vocabulary == first->vocabulary ? kOtherContents
                                                                                           : "");
    }
  }
  if (!first) return {};
  StatedTokenizer stated{nullptr, first->vocabulary, ""};
  const std::string who = name_of(first->tokenizer, first->vocabulary);
  if (first->tokenizer.empty()) {
    stated.note = fmt::format(
        "\"{}\" does not name its tokenizer: rows are shown as ids; --tokenizer shows text", first_path);
    return stated;
  }
  try {
    stated.tokenizer = make_tokenizer(first->tokenizer);
    if (tokenizer::fingerprint(*stated.tokenizer) == first->fingerprint) return stated;
    stated.tokenizer.reset();
    stated.note = fmt::format("\"{}\" has ids of {}, whose files have changed since: rows are shown as ids",
                              first_path, who);
  } catch (const Error& e) {  // the shards may come from another machine
    stated.note = fmt::format(
        "\"{}\" has ids of {}, which cannot be read: {}; rows are shown as ids, and --tokenizer shows text",
        first_path, who, e.message());
  }
  return stated;
}

}  // namespace mantissa::data
