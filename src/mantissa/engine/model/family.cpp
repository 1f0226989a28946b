// Access to the list of families.
#include "mantissa/engine/model/family.h"

#include "mantissa/engine/model/families/families.h"

namespace mantissa::model {

std::span<const Family* const> all_families() {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  for (const Family* family : all_families()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

std::span<const Field> common_fields() {
  using Kind = Field::Kind;
  static const std::vector<Field> fields = {
      {"model_type", Kind::text, "family of the model"},
      {"vocab_size", Kind::whole, "entries of the vocabulary"},
      {"tie_word_embeddings", Kind::flag, "the head is the embedding's matrix"},
      {"initializer_range", Kind::number, "standard deviation of the initial weights"},
      {"bos_token_id", Kind::any, "id that begins a text"},
      {"eos_token_id", Kind::any, "id or ids that end a text"},
      {"pad_token_id", Kind::any, "id whose row of the embedding the look-up does not train"},
  };
  return fields;
}

}  // namespace mantissa::model
