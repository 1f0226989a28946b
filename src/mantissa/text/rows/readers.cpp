#include "mantissa/text/rows/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
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

void require_utf8(const std::string& line, const std::string& path, std::int64_t number) {
  const std::size_t invalid = find_invalid_utf8(line);
  if (invalid == std::string_view::npos) return;
  throw FileError("{}:{}: byte {} of the line is not UTF-8; text must be UTF-8", path, number, invalid + 1);
}

/// Returns the end of a message about a row without text: how to read the fields that it has.
std::string other_fields_hint(const nlohmann::json& row) {
  if (!row.is_object()) return "";
  for (const char* name : {"messages", "conversations", "prompt", "instruction"}) {
    if (row.contains(name))
      return fmt::format(". Rows with \"{}\" are read by a config with train.objective = \"sft\"", name);
  }
  for (const auto& [name, value] : row.items()) {
    if (!value.is_string()) continue;
    const std::string option =
        name.find_first_of(",+=") != name.npos
            ? ""
            : ", or beside files " + shell_words(std::array{std::string("--fields"), "text=" + name});
    return fmt::format(". If the text is in {0}, write data.fields = {{text = {0}}} in a config{1}",
                       in_quotes(name), option);
  }
  return "";
}

// Returns the document of the last row of `rows`, in the first of `fields`.
std::string document_of(const nlohmann::json& row, const RowReader& rows,
                        std::span<const char* const> fields) {
  for (const char* name : fields) {
    const auto field = row.is_object() ? row.find(name) : row.end();
    if (field != row.end() && field->is_string()) return field->get<std::string>();
  }
  throw FileError("{}: no string field \"{}\"; every {} must be an object like {{\"{}\": \"…\"}}{}",
                  rows.where(), fields.front(), rows.place().row > 0 ? "row" : "line", fields.front(),
                  fields.size() == 1 ? other_fields_hint(row) : "");
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

void append_rows_file(const std::string& path, const FileFormat& format,
                      const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary, Corpus& corpus) {
  RowDocuments documents(path, format);
  separate(tokenizer, vocabulary, corpus);
  for (RowDocument document; documents.next(document);) {
    const std::vector<std::int32_t> tokens = tokenizer.encode(document.text);
    check_known_ids(tokens, tokenizer, vocabulary, document.place.in(path));
    corpus.append(tokens);
    corpus.append(known_separator(tokenizer, vocabulary));
    corpus.begin_document();
  }
}

bool RowDocuments::next(RowDocument& document) {
  nlohmann::json row;
  if (!rows_.next(row)) return false;
  document = {document_of(row, rows_, kTextField), rows_.place()};
  return true;
}

std::vector<RowDocument> read_row_documents(const std::string& path, std::int64_t most,
                                            std::span<const char* const> fields) {
  const std::string end = std::filesystem::path(without_compression(path)).extension().string();
  std::vector<RowDocument> documents;
  if (end != ".txt" && end != ".text") {
    RowReader rows(path);
    for (nlohmann::json row; std::ssize(documents) < most && rows.next(row);)
      documents.push_back({document_of(row, rows, fields), rows.place()});
    return documents;
  }
  Lines lines(path);
  for (std::string line; std::ssize(documents) < most && lines.next(line);) {
    if (line.ends_with('\r')) line.pop_back();  // the line end of Windows
    if (is_blank(line)) continue;
    require_utf8(line, path, lines.number());
    documents.push_back({line, {.line = lines.number()}});
  }
  return documents;
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
