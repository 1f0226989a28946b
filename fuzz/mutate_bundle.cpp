// Mutants of bundles: one file changes, by the kind that its name tells.
#include "bundle.h"
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

Mutator mutator_of(std::string_view name) {
  if (name.ends_with(".json")) return mutate_json;
  if (name.ends_with(".jsonl")) return mutate_json_lines;
  if (name.ends_with(".safetensors")) return mutate_safetensors;
  if (name.ends_with(".bin") || name.ends_with(".pth")) return mutate_pth;
  if (name.ends_with(".model")) return mutate_protobuf;
  return nullptr;
}

void change(BundledFile& file, Random& random) {
  const Mutator mutator = mutator_of(file.name);
  auto mutant = mutator != nullptr && !random.one_in(8) ? mutator(file.bytes, random) : std::nullopt;
  file.bytes = mutant ? std::move(*mutant) : mutate_bytes(file.bytes, file.bytes.size() + 64);
}

}  // namespace

std::optional<std::string> mutate_bundle(std::string_view input, Random& random) {
  auto files = parse_bundle(input);
  if (!files || files->empty()) return std::nullopt;
  BundledFile& file = (*files)[random.below(files->size())];
  if (random.one_in(32)) {
    files->erase(files->begin() + (&file - files->data()));
  } else if (random.one_in(64)) {
    file.name = mutate_bytes(file.name, 32);
  } else {
    change(file, random);
  }
  return write_bundle(*files);
}

}  // namespace mantissa::fuzz
