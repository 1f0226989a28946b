// The architectures of llama.cpp that correspond to families of this library: names of tensors, and how
// llama.cpp rearranges their values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::gguf {

/// The difference of a tensor of a GGUF file from the tensor of the same weight in a Hugging Face file.
enum class Transform : std::uint8_t {
  none,
  query_heads,  // within each query head, rows i and i + head_dim / 2 become rows 2i and 2i + 1
  key_heads,    // the same within each key head
  plus_one,     // gains are stored plus 1
  transposed,   // [out, in] instead of [in, out]
  flattened,    // one dimension
  part          // one of several vectors that are stored one after another
};

/// A pair of names. That of llama.cpp ends in ".weight" or ".bias".
struct NameRule {
  std::string_view gguf, hugging_face;
  Transform transform = Transform::none;
  std::int64_t part = 0;  // of Transform::part: its place
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
/// Return the architecture with this name or model_type, or null. With `experts`, "llama" is Mixtral's.
const Architecture* find_architecture(std::string_view name, bool experts = false);
const Architecture* architecture_of_model_type(std::string_view model_type);

struct GgufName {
  std::string name;
  Transform transform = Transform::none;
  std::int64_t part = 0;
};

/// The number of vectors in one tensor of Transform::part: the mixtures of RWKV-7.
inline constexpr std::int64_t kParts = 6;

/// Returns the GGUF name of a weight with a Hugging Face name ("model.layers.3.mlp.up_proj.weight"), or null.
std::optional<GgufName> gguf_name(const Architecture& architecture, std::string_view hugging_face);

/// Returns the shape in a GGUF file of a weight with this shape in a Hugging Face file.
std::vector<std::int64_t> gguf_shape(const std::vector<std::int64_t>& hugging_face, Transform transform);

/// Returns the second name under which a GGUF file holds a tensor, or "". llama.cpp's rwkv7 needs mixtures
/// with the first values in layer 0, too, and does not use them; files have copies of the learning rates'
/// there.
std::string copy_in(const Architecture& architecture, std::string_view gguf);
/// Returns true for the weights of all experts of a layer [experts, out, in].
bool is_of_experts(std::string_view gguf);
/// Returns true for the matrix of a router, which llama.cpp keeps in F32.
bool is_router(std::string_view gguf);
/// Returns true for low-rank matrices, which llama.cpp does not quantize.
bool is_low_rank(const Architecture& architecture, std::string_view gguf);

}  // namespace mantissa::gguf
