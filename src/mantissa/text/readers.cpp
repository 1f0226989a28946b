#include "mantissa/text/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/text/sources.h"
#include "mantissa/text/unicode.h"

namespace mantissa::text {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

// A file opened for reading, and how many bytes it holds.
struct Input {
  explicit Input(const std::string& path) : path(path), stream(path, std::ios::binary) {
    std::error_code error;
    bytes = std::filesystem::file_size(path, error);
    if (error || !stream)
      throw FileError(fmt::format("\"{}\" cannot be read; does it exist, and may you read it?", path));
  }

  // The next `count` bytes into `buffer`.
  void read(char* buffer, std::size_t count) {
    if (!stream.read(buffer, static_cast<std::streamsize>(count))) {
      throw FileError(fmt::format(
          "\"{}\" ended early: it held {} bytes when it was opened; was it being written?", path, bytes));
    }
  }

  const std::string& path;
  std::ifstream stream;
  std::uintmax_t bytes = 0;
};

void require_room_for(const Tokenizer& tokenizer, std::int64_t vocabulary) {
  if (tokenizer.vocabulary() <= vocabulary) return;
  throw ConfigError(
      fmt::format("data.tokenizer = \"{}\" has {} entries, but the model's vocabulary has {}; set "
                  "model.vocab_size to at least {}",
                  tokenizer.name(), tokenizer.vocabulary(), vocabulary, tokenizer.vocabulary()));
}

// The document of line `number`; `line` is one JSON object.
std::string document_of(const std::string& line, const std::string& path, std::int64_t number) {
  const std::size_t invalid = find_invalid_utf8(line);
  if (invalid != std::string_view::npos) {
    throw FileError(
        fmt::format("{}:{}: byte {} of the line is not UTF-8; JSON must be", path, number, invalid + 1));
  }
  nlohmann::json row;
  try {
    row = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError(fmt::format("{}:{}: not JSON at byte {} of the line; every line must be one JSON object",
                                path, number, error.byte));
  }
  const auto field = row.is_object() ? row.find("text") : row.end();
  if (field == row.end() || !field->is_string()) {
    throw FileError(
        fmt::format("{}:{}: no string field \"text\"; every line must be an object like {{\"text\": \"…\"}}",
                    path, number));
  }
  return field->get<std::string>();
}

std::uint32_t id_at(const unsigned char* bytes, std::size_t width) {
  std::uint32_t id = 0;
  for (std::size_t i = 0; i < width; ++i) id |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return id;
}

}  // namespace

void append_text_file(const std::string& path, const Tokenizer& tokenizer, std::int64_t vocabulary,
                      std::vector<std::int32_t>& ids) {
  require_room_for(tokenizer, vocabulary);
  Input input(path);
  std::string text(input.bytes, '\0');
  input.read(text.data(), text.size());
  if (!ids.empty() && ids.back() != tokenizer.separator()) ids.push_back(tokenizer.separator());
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

void append_jsonl_file(const std::string& path, const Tokenizer& tokenizer, std::int64_t vocabulary,
                       std::vector<std::int32_t>& ids) {
  require_room_for(tokenizer, vocabulary);
  Input input(path);
  if (!ids.empty() && ids.back() != tokenizer.separator()) ids.push_back(tokenizer.separator());
  std::string line;
  for (std::int64_t number = 1; std::getline(input.stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    append_document(document_of(line, path, number), tokenizer, ids);
  }
}

void append_token_file(const std::string& path, std::int64_t vocabulary, std::vector<std::int32_t>& ids) {
  const std::size_t width = vocabulary < 65536 ? 2 : 4;
  Input input(path);
  if (input.bytes % width != 0) {
    throw FileError(fmt::format(
        "\"{}\": {} bytes are not whole uint{} ids; a vocabulary of {} is stored as little-endian uint{}",
        path, input.bytes, 8 * width, vocabulary, 8 * width));
  }
  const std::size_t count = input.bytes / width;
  ids.reserve(ids.size() + count);
  std::vector<unsigned char> buffer(std::min(kChunk, count * width));
  for (std::size_t done = 0; done < count;) {
    const std::size_t batch = std::min(kChunk / width, count - done);
    input.read(reinterpret_cast<char*>(buffer.data()), batch * width);
    for (std::size_t i = 0; i < batch; ++i) {
      const std::uint32_t id = id_at(&buffer[i * width], width);
      if (id >= static_cast<std::uint64_t>(vocabulary)) {
        throw FileError(fmt::format(
            "\"{}\": id {} at position {} is not below the vocabulary's {} (read as little-endian uint{}); "
            "was the file written for another vocabulary, or with ids of another width?",
            path, id, done + i, vocabulary, 8 * width));
      }
      ids.push_back(static_cast<std::int32_t>(id));
    }
    done += batch;
  }
}

}  // namespace mantissa::text
