#include "mantissa/train/run/blocked_states.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/kernels/update.h"
#include "mantissa/train/run/shared_state.h"

namespace mantissa::run {
namespace {

using StateMemory = train::Trainer::NamedMemory;

constexpr std::size_t kStatePart = kStateBlock << 8;  // elements that are converted at once

/// A state of an optimizer in a file, part by part.
class SavedState {
 public:
  SavedState(const runtime::Device& device, const io::StateReader& state, const StateMemory& like)
      : device_(device), tensors_(state.tensors()), name_(like.name), dtype_(tensors_.find(name_)->dtype) {
    const bool blocks = holds_blocks(state, name_);
    if (blocks) codes_ = codes_of(like.never_negative);
    if (blocks ? codes_ != StateCodes::none : io::scalar_of(dtype_).has_value()) return;
    throw DtypeError("{}: a state in {} {} the scales {}{} has no meaning; resume from another state", name_,
                     io::safetensors_name(dtype_), blocks ? "with" : "without", name_, io::kStateScales);
  }

  /// Returns elements [first, first + n); `first` is a multiple of kStateBlock.
  std::vector<float> values(std::size_t first, std::size_t n) const {
    std::vector<float> values(n);
    if (codes_ != StateCodes::none) {
      std::vector<std::byte> part(BlockedState{codes_, nullptr, n}.bytes());
      const BlockedState blocks{codes_, part.data(), n};
      const std::span<std::byte> all(part);
      tensors_.read(name_ + std::string(io::kStateScales), all.first(blocks.codes_begin()),
                    first / kStateBlock * sizeof(float));
      tensors_.read(name_, all.subspan(blocks.codes_begin()), first * bytes_of(codes_));
      decode_states(blocks, 0, n, values.data());
      return values;
    }
    const Scalar type = *io::scalar_of(dtype_);
    std::vector<std::byte> part(n * bytes_of(type));
    tensors_.read(name_, part, first * bytes_of(type));
    kernels::cast(device_.host(), static_cast<std::int64_t>(n), part.data(), type, values.data(),
                  Scalar::f32);
    return values;
  }

 private:
  StateCodes codes_of(bool never_negative) const {
    switch (dtype_) {
      case io::Dtype::u8:
        return never_negative ? StateCodes::dynamic8_positive : StateCodes::dynamic8;
      case io::Dtype::e4m3:
        return StateCodes::e4m3;
      case io::Dtype::f16:
        return StateCodes::f16;
      default:
        return StateCodes::none;
    }
  }

  const runtime::Device& device_;
  const io::WeightFiles& tensors_;
  const std::string name_;
  const io::Dtype dtype_;
  StateCodes codes_ = StateCodes::none;
};

/// Throws ShapeError unless the scales of a state in blocks are one f32 for each block of its elements.
void check_scales(const io::WeightFiles& tensors, const io::TensorInfo& codes) {
  const io::TensorInfo& scales = *tensors.find(codes.name + std::string(io::kStateScales));
  const std::size_t blocks = BlockedState{.count = static_cast<std::size_t>(codes.count())}.blocks();
  if (scales.dtype == io::Dtype::f32 && scales.shape == std::vector{static_cast<std::int64_t>(blocks)})
    return;
  throw ShapeError(
      "{}: tensor {} is {} [{}], but {} has {} blocks, each with a scale in F32; resume from another state",
      tensors.path_of(scales.name).string(), name_in_quotes(scales.name), io::safetensors_name(scales.dtype),
      fmt::join(scales.shape, ", "), codes.name, blocks);
}

void copy(const io::WeightFiles& from, const StateMemory& to) {
  std::vector<std::byte> saved(to.bytes.size());
  from.read(to.name, saved);
  to.write(0, saved);
}

}  // namespace

bool holds_blocks(const io::StateReader& state, const std::string& name) {
  return state.tensors().find(name + std::string(io::kStateScales)) != nullptr;
}

void read_blocked_state(const train::Trainer& trainer, const io::StateReader& state, const StateMemory& to,
                        const StateMemory* scales) {
  const runtime::Device& device = trainer.device();
  const io::TensorInfo& info = *state.tensors().find(to.name);
  if (holds_blocks(state, to.name)) check_scales(state.tensors(), info);
  if (scales != nullptr && holds_blocks(state, to.name) && info.dtype == dtype_of(to)) {
    copy(state.tensors(), *scales);
    return copy(state.tensors(), to);
  }
  const SavedState saved(device, state, to);
  const auto count = static_cast<std::size_t>(info.count());
  for (std::size_t first = 0; first < count; first += kStatePart) {
    const std::size_t n = std::min(kStatePart, count - first);
    const std::vector<float> values = saved.values(first, n);
    if (scales == nullptr) {
      std::vector<std::byte> rounded(n * bytes_of(to.type));
      kernels::cast(device.host(), static_cast<std::int64_t>(n), values.data(), Scalar::f32, rounded.data(),
                    to.type);
      to.write(first * bytes_of(to.type), rounded);
      continue;
    }
    std::vector<std::byte> part(BlockedState{to.codes, nullptr, n}.bytes());
    const BlockedState blocks{to.codes, part.data(), n};
    encode_states(blocks, 0, values.data(), n);
    const std::span<const std::byte> all(part);
    scales->write(first / kStateBlock * sizeof(float), all.first(blocks.codes_begin()));
    to.write(first * bytes_of(to.codes), all.subspan(blocks.codes_begin()));
  }
}

}  // namespace mantissa::run
