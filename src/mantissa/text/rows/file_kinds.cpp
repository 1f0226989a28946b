#include "mantissa/text/rows/file_kinds.h"

#include <algorithm>
#include <iterator>

#include "mantissa/core/base/words.h"
#include "mantissa/text/rows/readers.h"

namespace mantissa::text {
namespace {

constexpr FileKind kKinds[] = {
    {"text", ".txt .text .md", true, "plain text, used byte for byte",
     [](const std::string& path, IdType /*ids*/, const tokenizer::Tokenizer& tokenizer,
        std::int64_t vocabulary, Corpus& corpus) { append_text_file(path, tokenizer, vocabulary, corpus); }},
    {"jsonl", ".jsonl .ndjson", true,
     "one JSON object per line, with the document in the string field `text`; other fields and lines of white "
     "space are ignored",
     [](const std::string& path, IdType /*ids*/, const tokenizer::Tokenizer& tokenizer,
        std::int64_t vocabulary, Corpus& corpus) { append_jsonl_file(path, tokenizer, vocabulary, corpus); }},
    {"tokens", ".bin .tokens", false, "ids, in one of two layouts (see \"Token files\")",
     [](const std::string& path, IdType ids, const tokenizer::Tokenizer& /*tokenizer*/,
        std::int64_t vocabulary, Corpus& corpus) { append_token_file(path, vocabulary, corpus, ids); }},
    {"binidx", ".idx", false,
     "the ids of a pair of Megatron, `x.idx` and `x.bin`, named by either file (see \"Megatron's pairs\"); a .bin "
     "file beside an .idx file is of this kind",
     [](const std::string& path, IdType /*ids*/, const tokenizer::Tokenizer& /*tokenizer*/,
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

std::vector<std::string> format_names(bool only_text) {
  std::vector<std::string> names = {"auto"};
  for (const FileKind& kind : kKinds) {
    if (kind.text || !only_text) names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace mantissa::text
