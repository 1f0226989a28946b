// The names of the tensors of RWKV-7 in checkpoints of RWKV-LM and in Hugging Face directories of
// flash-linear-attention. https://github.com/BlinkDL/RWKV-LM,
// https://github.com/fla-org/flash-linear-attention
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::rwkv {

/// The difference between the two tensors of a weight.
enum class Form : std::uint8_t {
  same,
  row,        // [1, 1, C] in RWKV-LM, [C] in Hugging Face
  transposed  // [C, rank] or [rank, C] in RWKV-LM, its transpose in Hugging Face
};

struct OtherName {
  std::string name;
  Form form = Form::same;
};

/// Returns the Hugging Face name of "blocks.3.att.key.weight", or null if RWKV-7 has no such tensor.
std::optional<OtherName> hugging_face_name(std::string_view rwkv);
/// Returns the RWKV-LM name of "model.layers.3.attn.k_proj.weight", or null if RWKV-7 has no such tensor.
std::optional<OtherName> rwkv_name(std::string_view hugging_face);

/// Returns `name` without "_forward_module.", which DeepSpeed puts before it.
std::string_view without_prefix(std::string_view name);

/// Returns true for blocks.0.att.v0, v1 and v2: RWKV-LM has these parameters and does not use them.
bool is_unused(std::string_view rwkv);

/// Returns the shape in RWKV-LM of a weight with this shape in Hugging Face.
std::vector<std::int64_t> rwkv_shape(const std::vector<std::int64_t>& hugging_face, Form form);

}  // namespace mantissa::rwkv
