// The architectures of llama.cpp that correspond to families of this library: names of tensors, and how
// llama.cpp rearranges their values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::gguf {

/// The difference of a tensor of a GGUF file from the tensor of the same weight in a Hugging Face file.
enum class Transform : std::uint8_t {
  none,
  query_heads,  // within each query head, rows i and i + head_dim / 2 become rows 2i and 2i + 1
  key_heads,    // the same within each key head
  plus_one,     // gains are stored plus 1
  transposed    // [out, in] instead of [in, out]
};

/// A pair of names. Both end in ".weight" or ".bias".
struct NameRule {
  std::string_view gguf, hugging_face;
  Transform transform = Transform::none;
};

struct Architecture {
  std::string_view name;             // general.architecture, and the prefix of the metadata keys
  std::string_view model_type;       // config.json's
  std::span<const NameRule> model;   // tensors outside the layers
  std::span<const NameRule> layers;  // tensors of a layer, without its prefix
  std::string_view layer_prefix;     // of Hugging Face names: "model.layers."
};

/// Returns all architectures.
std::span<const Architecture> all_architectures();
/// Return the architecture with this name or model_type, or null.
const Architecture* find_architecture(std::string_view name);
const Architecture* architecture_of_model_type(std::string_view model_type);

struct GgufName {
  std::string name;
  Transform transform = Transform::none;
};

/// Returns the GGUF name of a weight with a Hugging Face name ("model.layers.3.mlp.up_proj.weight"), or null.
std::optional<GgufName> gguf_name(const Architecture& architecture, std::string_view hugging_face);

}  // namespace mantissa::gguf
