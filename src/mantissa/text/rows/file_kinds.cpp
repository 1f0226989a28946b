#include "mantissa/text/rows/file_kinds.h"

#include <algorithm>
#include <iterator>

#include "mantissa/core/base/words.h"
#include "mantissa/text/rows/readers.h"

namespace mantissa::text {
namespace {

constexpr FileKind kKinds[] = {
    {"text", ".txt .text .md", true, false, "plain text, used byte for byte",
     [](const std::string& path, const FileFormat& /*format*/, const tokenizer::Tokenizer& tokenizer,
        std::int64_t vocabulary, Corpus& corpus) { append_text_file(path, tokenizer, vocabulary, corpus); }},
    {"jsonl", ".jsonl .ndjson", true, true,
     "one JSON object per line, with the document in the string field `text`; other fields and lines of white "
     "space are ignored",
     append_rows_file},
    {"json", ".json", true, true,
     "one JSON array of such objects, or as `jsonl`: a file that begins with `[` is an array under either name",
     append_rows_file},
    {kCsv, ".csv", true, true,
     "comma-separated values with a header; the document is in the column `text` (see \"CSV\")",
     append_rows_file},
    {"tokens", ".bin .tokens", false, false, "ids, in one of two layouts (see \"Token files\")",
     [](const std::string& path, const FileFormat& format, const tokenizer::Tokenizer& /*tokenizer*/,
        std::int64_t vocabulary,
        Corpus& corpus) { append_token_file(path, vocabulary, corpus, format.ids); }},
    {"binidx", ".idx", false, false,
     "the ids of a pair of Megatron, `x.idx` and `x.bin`, named by either file (see \"Megatron's pairs\"); a .bin "
     "file beside an .idx file is of this kind",
     [](const std::string& path, const FileFormat& /*format*/, const tokenizer::Tokenizer& /*tokenizer*/,
        std::int64_t vocabulary, Corpus& corpus) { append_binidx(path, vocabulary, corpus); }},
};

}  // namespace

std::span<const FileKind> file_kinds() {
  return kKinds;
}

const FileKind* find_file_kind(std::string_view name) {
  const auto* found = std::ranges::find(kKinds, name, &FileKind::name);
  return found == std::end(kKinds) ? nullptr : found;
}

const FileKind* file_kind_by_ending(std::string_view ending) {
  const auto* found = std::ranges::find_if(kKinds, [&](const FileKind& kind) {
    const std::vector<std::string_view> endings = split_words(kind.endings, " ");
    return std::ranges::find(endings, ending) != endings.end();
  });
  return found == std::end(kKinds) ? nullptr : found;
}

std::vector<std::string> format_names(Formats which) {
  std::vector<std::string> names = {"auto"};
  for (const FileKind& kind : kKinds) {
    if (which == Formats::all || (which == Formats::text ? kind.text : kind.rows))
      names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace mantissa::text
