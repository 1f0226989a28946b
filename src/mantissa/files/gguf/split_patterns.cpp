#include "mantissa/files/gguf/split_patterns.h"

#include <algorithm>

namespace mantissa::gguf {
namespace {

using nlohmann::json;

// The patterns are those of the models' own tokenizer.json files.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using enum SplitKind;

// The first entry of a split is the name that is written.
constexpr SplitPattern kSplits[] = {
    {"gpt-2", byte_level},
    {"mpt", byte_level},
    {"olmo", byte_level},
    {"jais", byte_level},
    {"phi-2", byte_level},
    {"gigachat", byte_level},
    {"roberta-bpe", byte_level},
    {"smollm", digits},
    {"starcoder", digits},
    {"refact", digits},
    {"codeshell", digits},
    {"exaone", digits},
    {"minerva-7b", digits},
    {"llama-bpe", pattern, kLlama3, false, true, true},
    {"llama3", pattern, kLlama3, false, true, true},
    {"llama-v3", pattern, kLlama3, false, true, true},
    {"falcon3", pattern, kLlama3, false, true, true},
    {"dbrx", pattern, kLlama3},
    {"smaug-bpe", pattern, kLlama3},
    {"qwen2", pattern, kQwen2, true},
    {"deepseek-r1-qwen", pattern, kQwen2, true},
    {"stablelm2", pattern, kQwen2},
    {"tekken", pattern, kTekken, false, true, true},
    {"gpt-4o", pattern, kGpt4o},
    {"llama4", pattern, kGpt4o},
};

json byte_level_step(bool splits) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", splits}};
}

/// Returns the value of `key`, of whatever type, or `otherwise` without one. json::value() would throw for
/// other types.
json member(const json& object, const char* key, json otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : *found;
}

/// Returns the parts of a pre_tokenizer that decide about splits.
json essence(const json& step) {
  const json type = step.is_object() ? member(step, "type", json()) : json();
  if (type == "Sequence") {
    json steps = json::array();
    for (const json& s : member(step, "pretokenizers", json::array())) steps.push_back(essence(s));
    return steps.size() == 1 ? steps.front() : steps;
  }
  if (type == "ByteLevel")
    return {{"type", type},
            {"prefix", member(step, "add_prefix_space", true)},
            {"splits", member(step, "use_regex", true)}};
  if (type == "Digits") return {{"type", type}, {"each", member(step, "individual_digits", false)}};
  if (type == "Split") {
    const json of = member(step, "pattern", json::object());
    return {{"type", type},
            {"pattern", of.is_object() ? member(of, "Regex", json()) : json()},
            {"behavior", member(step, "behavior", json())},
            {"invert", member(step, "invert", false)}};
  }
  return step;
}

}  // namespace

const SplitPattern* find_split(std::string_view name) {
  const auto* found = std::ranges::find(kSplits, name, &SplitPattern::name);
  return found == std::end(kSplits) ? nullptr : found;
}

json pre_tokenizer(const SplitPattern& split) {
  if (split.kind == byte_level) return byte_level_step(true);
  json first = {{"type", "Digits"}, {"individual_digits", true}};
  if (split.kind == pattern)
    first = {{"type", "Split"},
             {"pattern", {{"Regex", split.pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {first, byte_level_step(split.kind == digits)}}};
}

const SplitPattern* split_of(const json& step, bool normalizes, bool ignores_merges) {
  const json wanted = essence(step);
  const auto fits = [&](const SplitPattern& split) {
    return split.normalizes == normalizes && split.ignores_merges == ignores_merges &&
           essence(pre_tokenizer(split)) == wanted;
  };
  const auto* found = std::ranges::find_if(kSplits, fits);
  return found == std::end(kSplits) ? nullptr : found;
}

}  // namespace mantissa::gguf
