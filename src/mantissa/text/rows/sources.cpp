#include "mantissa/text/rows/sources.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <new>
#include <stdexcept>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/rows/byte_reader.h"
#include "mantissa/text/rows/file_kinds.h"

namespace mantissa::text {
namespace {

namespace fs = std::filesystem;

void require_regular_file(const std::string& path) {
  const disk::Kind kind = disk::kind_of(path);
  if (kind == disk::Kind::absent) {
    throw FileError("data: file not found: \"{}\"; check the path", path);
  }
  if (kind == disk::Kind::directory) {
    throw FileError("data: \"{0}\" is a directory; name its files, for example \"{0}/*.txt\"", path);
  }
  if (kind == disk::Kind::other) {
    throw FileError("data: \"{}\" is not a regular file; its size must be known", path);
  }
}

std::vector<std::string> match(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_ABORTED || result == GLOB_NOSPACE) {
    throw FileError("data: a directory of \"{}\" cannot be read; check its permissions", pattern);
  }
  if (paths.empty()) {
    throw FileError("data: no file matches \"{}\"; relative patterns start at the config's folder", pattern);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string format_by_name(const std::string& path) {
  const fs::path name = without_compression(path);
  const std::string end = name.extension().string();
  // Megatron's pair: x.idx describes the ids of x.bin, which are not raw.
  if (end == ".bin" && disk::exists(fs::path(path).replace_extension(".idx"))) return "binidx";
  if (const FileKind* kind = file_kind_by_ending(end)) return std::string(kind->name);
  if (end == ".parquet") ByteReader refuses(path);
  for (const char* compression : {".bz2", ".xz", ".lz4", ".zip", ".7z"}) {
    if (end != compression) continue;
    throw ConfigError("\"{}\": of compressed files this version reads .gz and .zst; decompress it first",
                      path);
  }
  std::string known;
  for (const FileKind& kind : file_kinds())
    known += fmt::format("{}{}{}", known.empty() ? "" : ", ", kind.endings,
                         kind.text ? ", also with .gz or .zst" : "");
  throw ConfigError(
      "data.format: \"auto\" does not know the extension of \"{}\" (known: {}); set data.format to one of {}",
      path, known, list_of(names_of(file_kinds(), &FileKind::name)));
}

void append_file(const std::string& path, const FileFormat& format, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t vocabulary, Corpus& corpus) {
  const FileKind& kind = *find_file_kind(format_of(path, format.name));
  kind.append(path, format, tokenizer, vocabulary, corpus);
}

}  // namespace

IdType id_type_named(const std::string& name, const std::string& where) {
  if (name == "auto") return IdType::automatic;
  if (name == "uint16") return IdType::uint16;
  if (name == "uint32") return IdType::uint32;
  throw ConfigError("{} {}: one of auto, uint16, uint32", where, name);
}

std::vector<std::string> expand_files(const std::vector<std::string>& patterns) {
  if (patterns.empty()) throw ConfigError("data: no file given");
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    const bool is_glob = pattern.find_first_of("*?[") != std::string::npos && !disk::exists(pattern);
    if (!is_glob) {
      const bool names_pair = !disk::exists(pattern) && disk::exists(pattern + ".idx");
      const char* const end = !names_pair ? "" : disk::exists(pattern + ".bin") ? ".bin" : ".idx";
      paths.push_back(pattern + end);  // the reader of an index names the .bin that is missing
      continue;
    }
    std::vector<std::string> matches = match(pattern);
    // The description that `data shard` writes beside its shards is not data.
    const auto describes = [](const std::string& path) {
      return fs::path(path).filename() == "shards.json" &&
             disk::exists(fs::path(path).parent_path() / "shard-00000.bin");
    };
    if (!std::ranges::all_of(matches, describes)) std::erase_if(matches, describes);
    const std::vector<std::string> all = matches;
    std::erase_if(matches, [&](const std::string& path) {  // an index is read with its ids
      return fs::path(path).extension() == ".idx" && std::ranges::binary_search(all, binidx_pair(path).bin);
    });
    paths.insert(paths.end(), matches.begin(), matches.end());
  }
  for (const std::string& path : paths) require_regular_file(path);
  return paths;
}

bool holds_text(const std::vector<std::string>& patterns, const std::string& format) {
  const auto is_text = [](const std::string& name) {
    const FileKind* kind = find_file_kind(name);
    return kind != nullptr && kind->text;
  };
  if (format != "auto") return is_text(format);
  return std::ranges::any_of(expand_files(patterns),
                             [&](const std::string& path) { return is_text(format_by_name(path)); });
}

bool holds_rows(const std::string& path, const std::string& format) {
  const FileKind* kind = find_file_kind(format == "auto" ? format_by_name(path) : format);
  return kind != nullptr && kind->rows;
}

std::string format_of(const std::string& path, const std::string& format) {
  const std::string of = format == "auto" ? format_by_name(path) : format;
  if (find_file_kind(of) != nullptr) return of;
  throw ConfigError("data.format: expected one of {}, got {}{}", list_of(format_names()), in_quotes(format),
                    did_you_mean(format, format_names()));
}

Corpus read_corpus(const std::vector<std::string>& patterns, const FileFormat& format,
                   const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary) {
  if (vocabulary < 1 || vocabulary > std::numeric_limits<std::int32_t>::max()) {
    throw ConfigError("a vocabulary of {} entries cannot be read; ids are 32-bit", vocabulary);
  }
  Corpus corpus;
  for (const std::string& path : expand_files(patterns)) {
    try {
      append_file(path, format, tokenizer, vocabulary, corpus);
    } catch (const std::bad_alloc&) {
      throw ResourceError(
          "data: not enough memory for the tokens of \"{}\", four bytes each. Fix: write token files with "
          "mantissa data shard, which are not held in memory, or use a machine with more memory",
          path);
    } catch (const std::length_error&) {  // more than a vector can hold
      throw FileError("data: \"{}\" is too large to read; use smaller files", path);
    }
  }
  if (corpus.tokens() == 0) {
    throw FileError("data: \"{}\"{} contains no tokens. Fix: give files with text", patterns.front(),
                    patterns.size() > 1 ? " and the files after it" : "");
  }
  return corpus;
}

std::vector<std::int32_t> read_tokens(const std::vector<std::string>& patterns, const FileFormat& format,
                                      const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary) {
  const Corpus corpus = read_corpus(patterns, format, tokenizer, vocabulary);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, ids);
  return ids;
}

}  // namespace mantissa::text
