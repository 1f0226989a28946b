#include "mantissa/app/api/tokenizer.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/io/json.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/settings.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "mantissa/text/tokenizer/train.h"

namespace mantissa::api {
namespace {

[[noreturn]] void refuse_id(const std::string& where, std::size_t position, std::string_view what) {
  throw FileError(
      fmt::format("{}: entry {} is {}, which is not a token id. Fix: give whole numbers from 0 to {}", where,
                  position, what, INT32_MAX));
}

std::vector<std::int32_t> ids_of_json(const nlohmann::json& json, const std::string& where) {
  const nlohmann::json* array = &json;
  if (json.is_object() && json.contains("ids")) array = &json["ids"];
  if (!array->is_array()) {
    throw FileError(
        fmt::format("{}: has no array of ids. Fix: write [1, 2, 3] or {{\"ids\": [1, 2, 3]}}", where));
  }
  std::vector<std::int32_t> ids;
  ids.reserve(array->size());
  for (const nlohmann::json& id : *array) {
    const bool whole = id.is_number_integer();
    const bool fits = whole && (id.is_number_unsigned() ? id.get<std::uint64_t>() <= INT32_MAX : false);
    if (!fits)
      refuse_id(where, ids.size(),
                name_in_quotes(id.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

constexpr std::string_view kTokenizerFile = "tokenizer.json", kSettingsFile = "tokenizer_config.json";

void check_place(const std::filesystem::path& out, const std::vector<std::filesystem::path>& texts,
                 bool overwrite) {
  // A part of a tokenizer is what an interrupted command left.
  const bool whole = disk::exists(out / kTokenizerFile) && disk::exists(out / kSettingsFile);
  for (const std::string_view name : {kTokenizerFile, kSettingsFile}) {
    if (disk::exists(out / name))
      disk::check_output({out / name, disk::Shape::stream, overwrite || !whole}, texts);
  }
  disk::check_files_atomic(out, disk::kTokenizer, {kTokenizerFile, kSettingsFile});
}

}  // namespace

Tokenizer::Tokenizer(const std::string& spec) : impl_(data::make_tokenizer(spec)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  return impl_->encode_with_template(text);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  return impl_->decode(ids);
}

std::string Tokenizer::name() const {
  return impl_->name();
}

std::int64_t Tokenizer::vocabulary() const {
  return impl_->vocabulary();
}

std::optional<std::int32_t> Tokenizer::bos() const {
  return impl_->bos();
}

std::optional<std::int32_t> Tokenizer::eos() const {
  return impl_->eos();
}

std::optional<std::string> Tokenizer::token(std::int32_t id) const {
  return impl_->token_of(id);
}

bool Tokenizer::special(std::int32_t id) const {
  return impl_->special(id);
}

TrainedTokenizer train_tokenizer(const std::vector<std::filesystem::path>& files,
                                 const std::filesystem::path& out, const TokenizerTraining& options) {
  const std::string end = "<|endoftext|>";
  check_place(out, files, options.overwrite);
  TrainedTokenizer trained;
  tokenizer::WordCounts words;
  for (const std::filesystem::path& file : files) {
    const std::string text = read_text(file);
    trained.bytes += static_cast<std::int64_t>(text.size());
    tokenizer::count_words(text, options.threads, words);
  }
  const tokenizer::TrainedBpe bpe = tokenizer::train_bpe(words, options.vocabulary, {&end, 1});
  trained.vocabulary = static_cast<std::int64_t>(bpe.tokens.size());
  trained.words = static_cast<std::int64_t>(words.size());
  const std::string json = tokenizer::tokenizer_json(bpe, 1);
  const auto made = tokenizer::parse_hf_tokenizer(json, "tokenizer.json", "", "");
  disk::write_files_atomic(
      out, disk::kTokenizer,
      {{kSettingsFile, tokenizer::settings_json(*made, tokenizer::FileForm::tokenizer_json)},
       {kTokenizerFile, json}},
      disk::given({}, options.overwrite).existing);
  return trained;
}

std::string read_text(const std::filesystem::path& file) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32U;
  return disk::read_text_file(file, kMost);
}

std::vector<std::int32_t> read_ids(std::string_view text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (text[first] == '[' || text[first] == '{') return ids_of_json(io::parse_json(text, where), where);
  std::vector<std::int32_t> ids;
  for (const std::string_view word : split_words(text, ", \t\r\n")) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0)
      refuse_id(where, ids.size(), name_in_quotes(word));
    ids.push_back(id);
  }
  return ids;
}

}  // namespace mantissa::api
