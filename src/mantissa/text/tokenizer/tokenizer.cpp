#include "mantissa/text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/hub.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

namespace fs = std::filesystem;

bool is_rwkv(std::string_view name) {
  return name.starts_with("rwkv_vocab") && name.ends_with(".txt");
}

/// Holds back the bytes of an incomplete character.
class BytesDecoder final : public TextDecoder {
 public:
  explicit BytesDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void push(std::int32_t id, std::string& text) override {
    held_ += tokenizer_.decode({&id, 1});
    const std::size_t complete = held_.size() - incomplete_tail(held_);
    text.append(held_, 0, complete);
    held_.erase(0, complete);
  }
  void finish(std::string& text) override { text += std::exchange(held_, {}); }

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

constexpr Kind kKinds[] = {
    {"tokenizer.json (Hugging Face)", [](std::string_view name) { return name == "tokenizer.json"; },
     [](const fs::path& file) { return file.extension() == ".json"; }, read_hf_tokenizer},
    {"*.model (SentencePiece)", [](std::string_view name) { return name.ends_with(".model"); },
     [](const fs::path& file) { return file.extension() == ".model"; }, read_sentencepiece_tokenizer},
    {"rwkv_vocab*.txt", is_rwkv, [](const fs::path& file) { return is_rwkv(file.filename().string()); },
     read_rwkv_tokenizer},
};

}  // namespace

fs::path find_in_directory(const fs::path& directory) {
  if (!disk::is_directory(directory)) return {};
  std::vector<fs::path> files = disk::entries(directory);
  std::erase_if(files, [](const fs::path& file) { return !disk::is_file(file); });
  for (const Kind& kind : kKinds) {
    for (const fs::path& file : files) {
      if (kind.is_default(file.filename().string())) return file;
    }
  }
  return {};
}

fs::path files_directory(const fs::path& path) {
  if (disk::exists(path / "config.json")) return path;
  if (disk::exists(path / "model" / "config.json")) return path / "model";
  const fs::path run = disk::exists(path / "state.json") ? (path / ".." / "..").lexically_normal() : path;
  const bool copies = disk::is_directory(run / "state") && disk::is_directory(run / kRunFolder);
  return copies ? run / kRunFolder : path;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view) const {
  return std::nullopt;
}

std::optional<std::string> Tokenizer::token_of(std::int32_t) const {
  return std::nullopt;
}

std::unique_ptr<TextDecoder> Tokenizer::text_decoder() const {
  return std::make_unique<BytesDecoder>(*this);
}

std::int64_t added_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::size_t first) {
  std::int64_t added = 0;
  for (std::size_t begin = 0; begin < ids.size();) {
    std::size_t end = begin;
    while (end < ids.size() && !tokenizer.special(ids[end])) ++end;
    if (end > first) {
      const std::span<const std::int32_t> part = ids.subspan(begin, end - begin),
                                          known = part.first(first > begin ? first - begin : 0);
      const std::size_t all = tokenizer.count_bytes(part), before = tokenizer.count_bytes(known);
      if (all > before) added += static_cast<std::int64_t>(all - before);  // decoders may shorten a text
    }
    begin = end + 1;
  }
  return added;
}

std::vector<std::vector<std::int32_t>> encode_batch(const Tokenizer& tokenizer,
                                                    std::span<const std::string_view> texts, int threads) {
  std::vector<std::vector<std::int32_t>> ids(texts.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < texts.size();) ids[i] = tokenizer.encode(texts[i]);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
      next = texts.size();
    }
  };
  const std::size_t most =
      threads > 0 ? static_cast<std::size_t>(threads) : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(std::max<std::size_t>(most, 1), texts.size()); ++i)
      others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return ids;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  if (spec == "byte") return byte_tokenizer();
  const fs::path path = disk::is_directory(spec) ? find_in_directory(files_directory(spec)) : fs::path(spec);
  for (const Kind& kind : kKinds) {
    if (kind.matches(path)) return kind.read(path);
  }
  std::string known;
  for (const Kind& kind : kKinds) known += fmt::format(", {}", kind.files);
  if (disk::kind_of(spec) == disk::Kind::absent) {
    const std::vector<std::string> words = {"byte"};
    if (const std::string cure = disk::hub_cure(spec); !cure.empty())
      throw ConfigError("tokenizer {}: there is no such file or directory{}", in_quotes(spec), cure);
    throw ConfigError(
        "tokenizer {}: expected \"byte\", or a file or directory that exists, got neither{} Fix: name one of the "
        "kinds: {}, or a directory with such a file",
        in_quotes(spec), nearest(spec, words) ? "; did you mean \"byte\"?" : ".", known.substr(2));
  }
  throw ConfigError(
      "data.tokenizer: \"{}\" is not a tokenizer of this version (tokenizers: \"byte\", 256 entries, "
      "one per byte{}, or a directory with such a file); for another vocabulary write the ids to a file and "
      "read them with data.format = \"tokens\"",
      spec, known);
}

}  // namespace mantissa::tokenizer
