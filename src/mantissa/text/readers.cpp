#include "mantissa/text/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/text/id_dtype.h"
#include "mantissa/text/known_ids.h"
#include "mantissa/text/unicode.h"

namespace mantissa::text {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{1}
                                     << 28;  // of JSON lines, each of which is parsed as a whole

// An open file and its size in bytes.
struct Input {
  explicit Input(const std::string& path) : path(path), stream(path, std::ios::binary) {
    std::error_code error;
    bytes = std::filesystem::file_size(path, error);
    if (error || !stream)
      throw FileError(fmt::format("\"{}\" cannot be read; check that it exists and is readable", path));
  }

  // Reads the next `count` bytes into `buffer`.
  void read(char* buffer, std::size_t count) {
    if (!stream.read(buffer, static_cast<std::streamsize>(count))) {
      throw FileError(fmt::format(
          "\"{}\" ended early: it had {} bytes when it was opened; check that nothing is writing it", path,
          bytes));
    }
  }

  const std::string& path;
  std::ifstream stream;
  std::uintmax_t bytes = 0;
};

// The lines of an input. Unlike std::getline it rejects a line that would exhaust memory, and does not
// mistake a read error for the end of the file.
class Lines {
 public:
  explicit Lines(Input& input) : input_(input), left_(input.bytes) {}

  /// Reads the next line without its terminator. Returns false at the end of the file.
  bool next(std::string& line) {
    line.clear();
    ++number_;
    while (true) {
      if (at_ == chunk_.size() && !refill()) {
        ended_ = false;
        return !line.empty();
      }
      const std::size_t end = chunk_.find('\n', at_);
      line.append(chunk_, at_, end == std::string::npos ? end : end - at_);
      at_ = end == std::string::npos ? chunk_.size() : end + 1;
      if (line.size() > kLongestLine) {
        throw FileError(fmt::format(
            "{}:{}: the line has more than {} MiB; every line must be one JSON object with one document",
            input_.path, number_, kLongestLine >> 20));
      }
      if (end != std::string::npos) return true;
    }
  }
  std::int64_t number() const { return number_; }  // of the last line, from 1
  bool ended() const { return ended_; }            // by a terminator, not by the end of the file

 private:
  bool refill() {
    chunk_.resize(static_cast<std::size_t>(std::min<std::uintmax_t>(kChunk, left_)));
    at_ = 0;
    if (chunk_.empty()) return false;
    input_.read(chunk_.data(), chunk_.size());
    left_ -= chunk_.size();
    return true;
  }

  Input& input_;
  std::uintmax_t left_;
  std::string chunk_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
  bool ended_ = true;
};

// Appends the separator before the next document, unless it is already there.
void separate(const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
              std::vector<std::int32_t>& ids) {
  if (!ids.empty() && ids.back() != tokenizer.separator())
    ids.push_back(known_separator(tokenizer, vocabulary));
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

void require_utf8(const std::string& line, const std::string& path, std::int64_t number, const char* what) {
  const std::size_t invalid = find_invalid_utf8(line);
  if (invalid == std::string_view::npos) return;
  throw FileError(fmt::format("{}:{}: byte {} of the line is not UTF-8; {} must be UTF-8", path, number,
                              invalid + 1, what));
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
  try {
    return Value::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    throw not_json(error.byte);
  } catch (const nlohmann::json::exception&) {
    throw FileError(fmt::format(
        "{}:{}: a number of the line is out of range; write it as a string or remove it", path, number));
  }
}

// Returns the document of line `number`. `line` is one JSON object.
std::string document_of(const std::string& line, const std::string& path, std::int64_t number) {
  const auto row = json_of<nlohmann::json>(line, path, number);
  const auto field = row.is_object() ? row.find("text") : row.end();
  if (field == row.end() || !field->is_string()) {
    throw FileError(
        fmt::format("{}:{}: no string field \"text\"; every line must be an object like {{\"text\": \"…\"}}",
                    path, number));
  }
  return field->get<std::string>();
}

// Throws DtypeError if the first bytes of a token file look like another format.
void refuse_strangers(const std::string& path, std::int64_t vocabulary, std::size_t bits) {
  constexpr std::size_t kLook = 2048;
  Input input(path);
  std::vector<char> begin(std::min<std::uintmax_t>(kLook, input.bytes));
  input.read(begin.data(), begin.size());
  const auto stranger = stranger_among_ids(std::as_bytes(std::span(begin)), vocabulary);
  if (!stranger) return;
  throw DtypeError(fmt::format(
      "\"{0}\": {1}, but a token file holds little-endian uint{2} for a vocabulary of {3}, without a header; "
      "write it with ids.astype(numpy.uint{2}).tofile(path) in NumPy, or use the text itself as data",
      path,
      *stranger == ".npy" ? "is a NumPy array with its header" : fmt::format("holds ids as {}", *stranger),
      bits, vocabulary));
}

std::uint32_t id_at(const unsigned char* bytes, std::size_t width) {
  std::uint32_t id = 0;
  for (std::size_t i = 0; i < width; ++i) id |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return id;
}

}  // namespace

void append_text_file(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                      std::vector<std::int32_t>& ids) {
  Input input(path);
  std::string text(input.bytes, '\0');
  input.read(text.data(), text.size());
  separate(tokenizer, vocabulary, ids);
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  check_known_ids_of_file(tokens, text, tokenizer, vocabulary, path);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

void append_jsonl_file(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                       std::int64_t vocabulary, std::vector<std::int32_t>& ids) {
  Input input(path);
  separate(tokenizer, vocabulary, ids);
  Lines lines(input);
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    const std::vector<std::int32_t> tokens = tokenizer.encode(document_of(line, path, lines.number()));
    check_known_ids(tokens, tokenizer, vocabulary, fmt::format("{}:{}", path, lines.number()));
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    ids.push_back(known_separator(tokenizer, vocabulary));
  }
}

std::vector<LineDocument> read_line_documents(const std::string& path, std::int64_t most) {
  const std::string end = std::filesystem::path(path).extension().string();
  const bool plain = end == ".txt" || end == ".text";
  Input input(path);
  Lines lines(input);
  std::vector<LineDocument> documents;
  for (std::string line; static_cast<std::int64_t>(documents.size()) < most && lines.next(line);) {
    if (is_blank(line)) continue;
    if (plain) require_utf8(line, path, lines.number(), "text");
    documents.push_back({plain ? line : document_of(line, path, lines.number()), lines.number()});
  }
  return documents;
}

void read_json_lines(const std::string& path, const JsonLine& take) {
  Input input(path);
  Lines lines(input);
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    auto row = json_of<nlohmann::ordered_json>(line, path, lines.number(), lines.ended());
    if (!row.is_object()) {
      throw FileError(fmt::format("{}:{}: is a JSON {}; every line must be one JSON object", path,
                                  lines.number(), row.type_name()));
    }
    if (!take(std::move(row), lines.number())) return;
  }
}

void append_token_file(const std::string& path, std::int64_t vocabulary, std::vector<std::int32_t>& ids) {
  const std::size_t width = vocabulary < 65536 ? 2 : 4;
  refuse_strangers(path, vocabulary, 8 * width);
  Input input(path);
  if (input.bytes % width != 0) {
    throw FileError(fmt::format(
        "\"{}\": {} bytes are not whole uint{} ids; a vocabulary of {} needs little-endian uint{}", path,
        input.bytes, 8 * width, vocabulary, 8 * width));
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
        throw FileError(
            fmt::format("\"{}\": id {} at position {} is not below the vocabulary size {} "
                        "(read as little-endian uint{}); check that the file was written for this "
                        "vocabulary and with this id width",
                        path, id, done + i, vocabulary, 8 * width));
      }
      ids.push_back(static_cast<std::int32_t>(id));
    }
    done += batch;
  }
}

}  // namespace mantissa::text
