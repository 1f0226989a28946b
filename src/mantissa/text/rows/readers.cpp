#include "mantissa/text/rows/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/rows/byte_reader.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/tokenizer/characters.h"

namespace mantissa::text {
namespace {

// Begins a document, after the separator unless it is already there.
void separate(const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary, Corpus& corpus) {
  const std::optional<std::int32_t> last = corpus.last();
  if (last && *last != tokenizer.separator()) corpus.append(known_separator(tokenizer, vocabulary));
  corpus.begin_document();
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

void require_utf8(const std::string& line, const std::string& path, std::int64_t number, const char* what) {
  const std::size_t invalid = find_invalid_utf8(line);
  if (invalid == std::string_view::npos) return;
  throw FileError("{}:{}: byte {} of the line is not UTF-8; {} must be UTF-8", path, number, invalid + 1,
                  what);
}

/// Returns the largest number of arrays and objects of a JSON text that lie within one another.
std::size_t nesting(std::string_view json) {
  std::size_t depth = 0, most = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return most;
}

// Returns the value of line `number`. `whole`: the line has its end.
template <class Value>
Value json_of(const std::string& line, const std::string& path, std::int64_t number, bool whole = true) {
  require_utf8(line, path, number, "JSON");
  const auto not_json = [&](std::size_t byte) {
    return FileError(fmt::format(
        "{}:{}: not JSON at byte {} of the line; every line must be one JSON object{}", path, number, byte,
        whole ? "" : ". The file ends within this line: check that it is complete"));
  };
  if (const std::size_t zero = line.find('\0'); zero != std::string::npos) {  // the parser would stop there
    throw not_json(zero + 1);
  }
  // Values are copied and written by functions that call themselves for each level.
  constexpr std::size_t kDeepest = 256;
  if (nesting(line) > kDeepest) {
    throw FileError("{}:{}: arrays and objects nest deeper than {} levels; write the row without them", path,
                    number, kDeepest);
  }
  try {
    return Value::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    throw not_json(error.byte);
  } catch (const nlohmann::json::exception&) {
    throw FileError("{}:{}: a number of the line is out of range; write it as a string or remove it", path,
                    number);
  }
}

/// Returns the end of a message about a row without text, if the row is a conversation.
std::string conversation_hint(const nlohmann::json& row) {
  for (const char* name : {"messages", "conversations", "prompt"}) {
    if (row.is_object() && row.contains(name))
      return fmt::format(". Rows with \"{}\" are read by a config with train.objective = \"sft\"", name);
  }
  return "";
}

// Returns the document of line `number`, in the first of `fields`. `line` is one JSON object.
std::string document_of(const std::string& line, const std::string& path, std::int64_t number,
                        std::span<const char* const> fields) {
  const auto row = json_of<nlohmann::json>(line, path, number);
  for (const char* name : fields) {
    const auto field = row.is_object() ? row.find(name) : row.end();
    if (field != row.end() && field->is_string()) return field->get<std::string>();
  }
  throw FileError("{}:{}: no string field \"{}\"; every line must be an object like {{\"{}\": \"…\"}}{}",
                  path, number, fields.front(), fields.front(),
                  fields.size() == 1 ? conversation_hint(row) : "");
}

}  // namespace

void append_text_file(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                      Corpus& corpus) {
  const std::string text = read_all_bytes(path);
  separate(tokenizer, vocabulary, corpus);
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  check_known_ids_of_file(tokens, text, tokenizer, vocabulary, path);
  corpus.append(std::move(tokens));
}

void append_jsonl_file(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                       std::int64_t vocabulary, Corpus& corpus) {
  JsonLines documents(path);
  separate(tokenizer, vocabulary, corpus);
  for (LineDocument document; documents.next(document);) {
    const std::vector<std::int32_t> tokens = tokenizer.encode(document.text);
    check_known_ids(tokens, tokenizer, vocabulary, fmt::format("{}:{}", path, document.line));
    corpus.append(tokens);
    corpus.append(known_separator(tokenizer, vocabulary));
    corpus.begin_document();
  }
}

bool JsonLines::next(LineDocument& document) {
  while (lines_.next(line_)) {
    if (is_blank(line_)) continue;
    document = {document_of(line_, lines_.input().path(), lines_.number(), kTextField), lines_.number()};
    return true;
  }
  return false;
}

std::vector<LineDocument> read_line_documents(const std::string& path, std::int64_t most,
                                              std::span<const char* const> fields) {
  const std::string end = std::filesystem::path(without_compression(path)).extension().string();
  const bool plain = end == ".txt" || end == ".text";
  Lines lines(path);
  std::vector<LineDocument> documents;
  for (std::string line; static_cast<std::int64_t>(documents.size()) < most && lines.next(line);) {
    if (plain && line.ends_with('\r')) line.pop_back();  // the line end of Windows
    if (is_blank(line)) continue;
    if (plain) require_utf8(line, path, lines.number(), "text");
    documents.push_back({plain ? line : document_of(line, path, lines.number(), fields), lines.number()});
  }
  return documents;
}

void read_json_lines(const std::string& path, const JsonLine& take) {
  Lines lines(path);
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    auto row = json_of<nlohmann::ordered_json>(line, path, lines.number(), lines.ended());
    if (!row.is_object()) {
      throw FileError("{}:{}: is a JSON {}; every line must be one JSON object", path, lines.number(),
                      row.type_name());
    }
    if (!take(std::move(row), lines.number())) return;
  }
}

namespace {

void append_checked(const TokenFile& file, Corpus& corpus) {
  // The ids of a larger file are checked when they are used.
  constexpr std::int64_t kChecked = std::int64_t{1} << 28, kBatch = std::int64_t{1} << 16;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kBatch, file.size())));
  for (std::int64_t first = 0; file.size() <= kChecked && first < file.size(); first += kBatch)
    file.read(first, std::span(ids).first(static_cast<std::size_t>(std::min(kBatch, file.size() - first))));
  corpus.append(file);
}

}  // namespace

void append_token_file(const std::string& path, std::int64_t vocabulary, Corpus& corpus, IdType type) {
  const std::string_view plain = without_compression(path);
  if (plain.size() != path.size()) {
    throw FileError(
        "\"{}\": token files are read by position, which compressed ones do not "
        "allow. Fix: decompress it to \"{}\"",
        path, plain);
  }
  append_checked(TokenFile(path, vocabulary, type), corpus);
}

void append_binidx(const std::string& path, std::int64_t vocabulary, Corpus& corpus) {
  const BinidxPair pair = binidx_pair(path);
  for (const std::string& file : {pair.idx, pair.bin}) {
    if (disk::exists(file)) continue;
    throw FileError(
        "\"{}\": expected \"{}\" beside it (binidx data are a pair of .idx and .bin). Fix: copy "
        "both files to one folder",
        path, std::filesystem::path(file).filename().string());
  }
  append_checked(TokenFile(pair, vocabulary), corpus);
}

}  // namespace mantissa::text
