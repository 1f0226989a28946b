// The setup of targets that make rows of bytes from an input file: under ChatML and without a template,
// truncated on the left.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "mantissa/setup/data/sft_rows.h"
#include "memory_file.h"

namespace mantissa::fuzz {

struct ByteRows {
  static constexpr std::int64_t kVocabulary = 256;

  ByteRows(const std::uint8_t* data, std::size_t size) : file(data, size) {
    rules.sequence_length = 100;
    rules.truncate = "left";
    rules.empty_answers = "train";
  }

  MemoryFile file;
  const std::unique_ptr<const tokenizer::Tokenizer> tokenizer = tokenizer::make_tokenizer("byte");
  const data::ChatFormat chatml{weights::ModelSource{}, "chatml", "--template", *tokenizer};
  const std::array<const data::ChatFormat*, 2> formats = {&chatml, nullptr};
  data::SftRules rules;
};

}  // namespace mantissa::fuzz
